"""Verbs that measure scores: detect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.visible import visible
from .app import app
from .printing import MOST, AsJson, ScoresFolder, example, out, print_json, print_table, progress, say, span


@app.command(
    epilog=example(
        "errornorm detect scores --labels labels",
        "errornorm detect scores --labels label --positive copied,other_language --level sentence",
        "errornorm detect scores --labels labels --group-by system --output detection --json",
    )
)
def detect(
    scores: ScoresFolder,
    labels: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Of the records: 0 or 1 for each word, [start, end] spans, or one label."),
    ],
    positive: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Labels that mean noise, if they are not 0 and 1.", show_default=False),
    ] = None,
    level: Annotated[str, typer.Option(metavar="LEVEL", help="token, word, sentence, or all.")] = "all",
    group_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Numbers for each group too.", show_default=False)
    ] = None,
    resample_by: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Draw texts of equal value together, such as id.", show_default=False),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MOST, help="Resamples of texts for the 95 % intervals; 0: none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=MOST, help="Of the resamples.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", file_okay=False, help="For detect.json and detect.png."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well each score finds what people labelled as noise.

    AUROC (chance is 0.5), average precision (chance is the base rate), the overlap of the histograms of clean and
    noisy units (less is better), and the difference in AUROC to the loss, with intervals from resampled texts.
    """
    from ..curation import detect as library
    from ..scoring.table import refuse_among_scores

    if output is not None:  # before the work, not behind it
        refuse_among_scores(output, "detection")
    with progress() as tell:
        tell("measuring")
        found = library.detect(
            scores, labels, level=level, positive=positive.split(",") if positive else None, group_by=group_by,
            resample_by=resample_by, bootstrap=bootstrap, seed=seed,
        )  # fmt: skip
    files = found.save(output) if output is not None else []
    if as_json:
        print_json(found.as_dict())
        return
    for group in dict.fromkeys(row["group"] for row in found.rows):
        _print_group(group, [row for row in found.rows if row["group"] == group])
    for note in found.notes:
        say(note)
    for file in files:
        out(file)


def _print_group(group: str | None, rows: list[dict[str, Any]]) -> None:
    for level in dict.fromkeys(row["level"] for row in rows):
        mine = [row for row in rows if row["level"] == level]
        first = mine[0]
        title = f"{level}s: {first['noisy']} of {first['units']} are noise, in {first['texts']} texts"
        out(title if group is None else f"{visible(group)}, {title}")
        if first["auroc"] is None:
            out("nothing to tell apart\n")
            continue
        mine.sort(key=lambda row: -row["auroc"])
        header = ("score", "AUROC", "95 %", "average precision", "overlap", "AUROC less that of", "95 % ")
        print_table(header, [_cells(row) for row in mine])
        out()


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["score"], f"{row['auroc']:.3f}", span(row, "auroc"), f"{row['average_precision']:.3f}",
        f"{row['overlap']:.3f}", "-" if row["score"] == row["against"] else
        f"{row['against']}: {row['auroc_difference']:+.3f}",
        "-" if row["score"] == row["against"] else span(row, "auroc_difference", "+.3f"),
    )  # fmt: skip
