"""Beyond the paper: what `ent_auto` sees, while a model learns the noise."""

from __future__ import annotations

from pathlib import Path

from errornorm.openings import suspicious
from errornorm.tables import table

from .. import drawing
from ..cells import Cell
from ..plan import Found, Item, Plan
from .figure_noise_rate import TEXTS

NAME = "figure-openings"
NOISE = (("untranslated", 0.5),)
PARTS = (0.25, 0.5, 1.0)  # of the steps


def cells(plan: Plan) -> list[Cell]:
    """The same training text, by a model that has learnt from it for a while, and for longer."""
    out = []
    for corpus in ("translation", "everyday"):
        steps = plan.scale.tasks[corpus]["training"]["steps"]
        for number in dict.fromkeys(int(part * steps) for part in PARTS):
            changes = {"texts": TEXTS} | ({"training.steps": number} if number < steps else {})
            column = f"step {number}"
            out.append(plan.scale.cell(NAME, corpus, column, corpus, do="estimate", noise=NOISE, changes=changes))
    return out


def text(found: Found) -> str:
    lines = []
    for cell, row in found:
        sides: dict[int, list[bool]] = {0: [], 1: []}
        for norm, hard, noisy in row["openings"]:
            sides[noisy].append(suspicious(norm, hard))
        shares = [f"{sum(side) / len(side):.1%}" if side else "-" for side in sides.values()]
        lines.append((cell.row, cell.column, *shares, f"{row['measures']['learnt']:.1%}"))
    header = ("corpus", "model", "clean texts", "copies", "found, by certain texts")
    return "Texts that ent_auto drops once it has found noise, and what it finds:\n\n" + table(header, lines)


def draw(found: Found, path: Path) -> None:
    drawing.openings({f"{cell.row}, {cell.column}": row["openings"] for cell, row in found}, path)


ITEM = Item(
    name=NAME,
    where="not in the paper",
    title="Openings",
    cells=cells,
    ours="copies of the source, half as many as there are clean pairs; the model is trained by likelihood",
    families=(),
    figure=draw,
    text=text,
)
