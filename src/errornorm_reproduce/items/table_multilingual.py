"""Table 4: one model for several directions."""

from __future__ import annotations

from ..cells import Cell
from ..plan import Claim, Condition, Item, Plan
from ..store import Row
from .table_untranslated import CHOICE

OURS = ("ENT-Fraction", "ENT-Threshold")
NAME, MEAN = "table-multilingual", "Avg."
COLUMNS = ("en-es", "en-fa", "en-fr", "en-it", "en-ko", "en-ru", "en-tr", "en-zh", MEAN)
PAPER = {
    "MLE": (40.5, 14.2, 40.4, 35.1, 10.1, 36.3, 25, 39.2, 30.1),
    "Loss Truncation": (39.8, 14.0, 40.1, 34.4, 9.9, 36.5, 24.7, 40.1, 29.9),
    "TaiLr": (40.4, 14.0, 40.2, 35.1, 10.0, 36.1, 25.2, 39.6, 30.1),
    "ENT-Fraction": (41.1, 14.8, 40.3, 35.2, 10.3, 36.4, 25.0, 39.6, 30.3),
    "ENT-Threshold": (41.9, 14.9, 41, 34.8, 10.2, 36.5, 25.5, 39.8, 30.6),
}


def by_direction(cell: Cell, row: Row, measure: str) -> dict[str, float]:
    """A column for each direction, and their mean."""
    found = {name: float(part[measure]) for name, part in row.get("sets", {}).items() if measure in part}
    return found | {MEAN: float(row["measures"][measure])}


def of_direction(column: str, row: Row, measure: str) -> tuple[str, str | None]:
    return measure, None if column == MEAN else column


def cells(plan: Plan, condition: Condition = CHOICE) -> list[Cell]:
    return plan.compared(NAME, "", "multilingual", condition)


ITEM = Item(
    name=NAME,
    where="Table 4",
    title="Several directions, one model",
    cells=cells,
    measures={"BLEU, beam 5": "bleu"},
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        *(Claim("our method consistently outperforms the baseline", name) for name in OURS),
        *(Claim("Error Norm Truncation with threshold and fraction outperforms the baseline and Loss Truncation in 7 "
                "out of 8 directions", name, ("MLE", "Loss Truncation")) for name in OURS),
        Claim("previous methods often underperform the MLE baseline", "MLE", ("Loss Truncation", "TaiLr")),
    ),
    words={
        "data": "a single model for eight directions en-{es,fa,fr,it,ko,ru,tr,zh} ... using 1M parallel sentences "
        "for each direction",
    },
    condition=CHOICE,
    values=by_direction,
    tested=of_direction,
)  # fmt: skip
