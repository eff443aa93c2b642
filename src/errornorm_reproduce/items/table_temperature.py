"""Table 8: two directions of different size, drawn at three temperatures."""

from __future__ import annotations

from .. import methods
from ..cells import Cell
from ..plan import Claim, Item, Plan
from ..store import Row
from .table_untranslated import CHOICE

NAME = "table-temperature"
TEMPERATURES = (1, 5, 100)
COLUMNS = tuple(f"T={t}, {size}" for t in TEMPERATURES for size in ("small", "large"))  # En-Gl, En-Fr in the paper
PAPER = {
    "MLE": (27.4, 38.1, 27.1, 37.2, 27.9, 37.2),
    "Loss Truncation": (27.4, 37.9, 27.3, 37.0, 27.6, 37.1),
    "TaiLr": (27.7, 38.0, 27.5, 37.1, 28.2, 37.5),
    "ENT-Fraction": (28.0, 38.2, 27.4, 37.2, 28.2, 37.2),
    "ENT-Threshold": (28.1, 38.2, 27.5, 37.3, 28.5, 37.2),
}


def cells(plan: Plan) -> list[Cell]:
    return [
        cell
        for t in TEMPERATURES
        for cell in plan.compared(NAME, f"T={t}", "mismatched", CHOICE, methods.PAPER,
                                  changes={"temperature": float(t)})
    ]  # fmt: skip


def by_size(cell: Cell, row: Row, measure: str) -> dict[str, float]:
    """The smaller corpus comes first in the recipe."""
    parts = zip(("small", "large"), row.get("sets", {}).values(), strict=False)
    return {f"{cell.column}, {size}": float(part[measure]) for size, part in parts if measure in part}


def of_size(column: str, row: Row, measure: str) -> tuple[str, str | None]:
    return measure, list(row["sets"])[column.endswith("large")]


ITEM = Item(
    name=NAME,
    where="Table 8",
    title="Directions of different size",
    cells=cells,
    measures={"BLEU, beam 5": "bleu"},
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        Claim("Our method was able to outperform the baseline and other truncation methods in 5 out of 6 setups",
              "ENT-Threshold", ("MLE", "Loss Truncation", "TaiLr")),
        Claim("improving the performance on low-resource languages", "ENT-Fraction",
              columns=tuple(column for column in COLUMNS if column.endswith("small"))),
    ),
    words={
        "data": "En-Gl is low resource with 400k parallel sentences and En-Fr is high resource with 1M "
        "parallel sentences",
    },
    condition=CHOICE,
    values=by_size,
    tested=of_size,
    families=methods.PAPER,
)  # fmt: skip
