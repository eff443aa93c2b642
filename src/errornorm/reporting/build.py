"""From scores to a page to look at them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.files import real, require_place, written
from ..data.lines import DataError
from ..scoring.memory import scores_of
from ..scoring.objects import AGAIN
from ..scoring.table import Scores, refuse_among_scores
from . import figures as drawing
from .gather import gather
from .page import shell
from .payload import LINES, dataset_name, payload
from .quarantined import Quarantined, read_quarantine

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT = 2_000_000  # bytes of the page, whatever the corpus


@dataclass(frozen=True, slots=True)
class Report:
    """What was written. `records` = `used` + `quarantined`; `sentences` of the used ones are on the page."""

    output: str
    bytes: int
    records: int
    used: int
    quarantined: int
    tokens: int
    sentences: int
    figures: list[str]


def report(
    scores: Scores | pa.Table | Path | str,
    output: Path | str,
    *,
    group_by: str | None = None,
    title: str | None = None,
    figures: Path | str | None = None,
) -> Report:
    """Write one HTML file about scores, of at most 2 MB.

    Counts are of all tokens; of the texts, those are in the page that are worth a look, and some at random. Equal
    scores give equal bytes.

    Args:
        scores: A folder that `score` made, or its table (pyarrow or pandas).
        output: The page.
        group_by: A field of the records, such as a source or a language, for the table of sources.
        title: Instead of the name of the corpus.
        figures: A folder for the distributions as PNG; needs matplotlib.

    Example:
        report("scores", "report.html", group_by="domain")
    """
    rows, output = scores_of(scores), Path(output)
    _check(rows, output, None if figures is None else Path(figures))
    if figures is not None:
        drawing.needs_matplotlib()
    found, lost = gather(rows, group_by), _quarantined(rows)
    before, after = shell()
    room = LIMIT - len((before + after).encode())
    data = payload(rows, found, lost, title or default_title(rows.meta), room)
    page = before + data.text + after
    size = len(page.encode())
    assert size <= LIMIT, f"a page of {size} bytes"
    with written(real(output)) as file:
        file.write(page)
    drawn = drawing.draw(found.tally, Path(figures)) if figures is not None else []
    tally, records = found.tally, int(rows.meta["records"])
    return Report(
        str(output), size, records, tally.rows, lost.total, tally.tokens, data.sentences, [str(path) for path in drawn]
    )


def _check(rows: Scores, output: Path, figures: Path | None) -> None:
    """Nothing that is read must be replaced."""
    for place, name in ((output, "report.html"), (figures, "figures")):
        if place is not None:
            refuse_among_scores(place, name)
    if output.is_dir():
        raise ValueError(f"{output} is a folder: give the name of a file, such as {output / 'report.html'}")
    require_place(output)
    corpus = rows.meta.get("corpus") or {}
    if any(_same(str(corpus.get(side) or ""), output) for side in ("path", "pair")):
        raise ValueError(f"{output} is the corpus: choose another name for the output")


def _same(name: str, path: Path) -> bool:
    try:
        return path.samefile(name)
    except (OSError, ValueError):  # one is not there, or has no name of a file
        return False


def _quarantined(rows: Scores) -> Quarantined:
    lost = read_quarantine(rows.quarantine, LINES)
    if lost.total != rows.meta["quarantined"]:
        raise DataError(f"{lost.total} quarantined lines and meta.json says {rows.meta['quarantined']}; {AGAIN}")
    return lost


def default_title(meta: Any) -> str:
    """The name of the corpus."""
    corpus = meta.get("corpus") or {}
    name = corpus.get("path") or dataset_name(corpus)
    return Path(str(name)).name if name else "Scores"
