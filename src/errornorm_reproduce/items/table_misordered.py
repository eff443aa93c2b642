"""Table 2: translation with shuffled targets in the training data."""

from __future__ import annotations

from ..plan import Claim, Item
from .table_untranslated import CHOICE, COLUMNS, MEASURES, noisy

NAME, NOISE = "table-misordered", "misordered"
PAPER = {
    "MLE": (36.5, 36.1, 36.1, 36.2, 35.8, 35.5),
    "Loss Truncation": (36.5, 36.1, 36.1, 36.2, 35.8, 35.7),
    "TaiLr": (36.6, 36.2, 36.2, 36.3, 36.2, 36.2),
    "ENT-Fraction": (36.7, 36.3, 36.7, 36.7, 36.5, 36.4),
}

ITEM = Item(
    name=NAME,
    where="Table 2",
    title="Misordered words",
    cells=lambda plan: noisy(plan, NAME, NOISE),
    measures={title: measure for title, measure in MEASURES.items() if "bleu" in measure},
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        Claim("resulting in the largest BLEU scores improvement over the baseline in all noise levels", "ENT-Fraction",
              ("MLE", "Loss Truncation", "TaiLr"), COLUMNS[1:]),
        Claim("outperforms the baseline 0.9 BLEU when 50% of randomly shuffled sentences are injected", "ENT-Fraction",
              columns=("50%",)),
    ),
    words={"noise": "the words at the target side is randomly shuffled"},
    condition=CHOICE,
)  # fmt: skip
