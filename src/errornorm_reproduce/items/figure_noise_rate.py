"""Beyond the paper: how much noise the scores show, against how much there is."""

from __future__ import annotations

from pathlib import Path

from errornorm.tables import table

from .. import drawing
from ..cells import Cell
from ..plan import Found, Item, Plan

NAME = "figure-noise-rate"
NOISES = ("untranslated", "misordered", "substituted")
SHARES = (0.0, 0.1, 0.2, 0.5, 1.0)  # added to the clean text; the last is half of the mix
TEXTS = 4000


def cells(plan: Plan) -> list[Cell]:
    """The training text under a model that learnt from it by likelihood."""
    shares = SHARES if plan.scale.name == "small" else plan.scale.noise
    return [
        plan.scale.cell(NAME, noise, f"{share:.0%} added", "translation", do="estimate",
                        noise=((noise, share),) if share else (), changes={"texts": TEXTS})
        for noise in NOISES for share in shares
    ]  # fmt: skip


def text(found: Found) -> str:
    lines = [
        (cell.row, f"{row['measures']['truth']:.1%}", f"{row['measures']['rate']:.1%}",
         f"{row['measures']['learnt']:.1%}", " ".join(row["said"]))
        for cell, row in found
    ]  # fmt: skip
    return table(("noise", "there is", "estimated", "of it by openings, at least", "what is said"), lines)


def draw(found: Found, path: Path) -> None:
    series: dict[str, tuple[list[float], list[float]]] = {"there is": ([0, 50], [0, 50])}
    for cell, row in found:
        xs, ys = series.setdefault(cell.row, ([], []))
        xs.append(100 * row["measures"]["truth"])
        ys.append(100 * row["measures"]["rate"])
    drawing.lines(series, path, "noise in the training text (%)", "estimate (%)")


ITEM = Item(
    name=NAME,
    where="not in the paper",
    title="How much is noise",
    cells=cells,
    ours="what `errornorm score --advise` says about the training text, by a model that learnt from it",
    families=(),
    figure=draw,
    text=text,
)
