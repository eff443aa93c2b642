"""Figure 1: three predictions with equal loss and different error norms."""

from __future__ import annotations

from pathlib import Path

from errornorm.tables import table

from .. import drawing
from ..cells import Cell
from ..plan import Found, Item, Plan

NAME = "figure-example"


def cells(plan: Plan) -> list[Cell]:
    return [Cell(item=NAME, row="example", column="", scale="any", do="illustrate")]


def text(found: Found) -> str:
    ((_, row),) = found
    lines = [(part["name"], f"{part['nll']:.3f}", f"{part['error_norm']:.3f}") for part in row["distributions"]]
    norms = [part["error_norm"] for part in row["distributions"]]
    held = "holds" if max(norms) == norms[-1] and len({round(p["nll"], 6) for p in row["distributions"]}) == 1 else "no"
    return table(("prediction", "loss", "error norm"), lines) + (
        f"\n\nEqual loss, and the largest error norm for the error: {held}. The probabilities are ours; the paper's "
        "figure names no numbers."
    )


def draw(found: Found, path: Path) -> None:
    ((_, row),) = found
    drawing.bars(row["distributions"], path)


ITEM = Item(
    name=NAME,
    where="Figure 1",
    title="Equal loss, different error norm",
    cells=cells,
    words={
        "claim": "All three examples have equal loss ... Truncating high loss removes all three examples whereas "
        "truncating high ... error norm only removes the third erroneous example",
    },
    families=(),
    figure=draw,
    text=text,
)
