"""Table 1: translation with copies of the source in the training data."""

from __future__ import annotations

from ..cells import Cell
from ..plan import Claim, Condition, Item, Plan

NAME, NOISE = "table-untranslated", "untranslated"
COLUMNS = ("0%", "10%", "20%", "30%", "40%", "50%")
PAPER = {
    "MLE": (36.5, 34.9, 33.2, 30.6, 31.0, 28.6),
    "Loss Truncation": (36.5, 33.2, 32.5, 31.5, 31.4, 29.4),
    "TaiLr": (36.6, 34.3, 33.4, 31.5, 31.6, 30.3),
    "ENT-Fraction": (36.7, 33.3, 33.8, 33.3, 33.1, 32.4),
}
CHOICE = Condition("translation", ((NOISE, 0.2),))
MEASURES = {
    "BLEU, beam 5": "bleu",
    "BLEU, greedy": "bleu_greedy",
    "Outputs that copy their source, beam 5": "copies",
    "Outputs that copy their source, greedy": "copies_greedy",
}


def noisy(plan: Plan, name: str, noise: str) -> list[Cell]:
    """Every method at every share of a noise."""
    return [
        cell
        for share in plan.scale.noise
        for cell in plan.compared(name, f"{share:.0%}", "translation", CHOICE, noise=((noise, share),) if share else ())
    ]


ITEM = Item(
    name=NAME,
    where="Table 1",
    title="Untranslated text",
    cells=lambda plan: noisy(plan, NAME, NOISE),
    measures=MEASURES,
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        Claim("Error Norm Truncation consistently improves performance with higher injection percentages",
              "ENT-Fraction", columns=COLUMNS[1:]),
        Claim("Outperforming the baseline 3.8 BLEU ... when 50% of noise is injected", "ENT-Fraction",
              columns=("50%",)),
        Claim("outperforming the best of Loss Truncation and TaiLr 2.1 BLEU when 50% of noise is injected",
              "ENT-Fraction", ("Loss Truncation", "TaiLr"), ("50%",)),
        Claim("TaiLr exhibits modest gains", "TaiLr", columns=COLUMNS[1:]),
    ),
    words={
        "data": "we inject noise into 1M parallel sentences of En-Fr data from the opus-100 dataset",
        "noise": "the source sentence is directly copied to the target side ... {10%, 20%, 30%, 40% 50%} of the size "
        "of the original clean corpus",
    },
    condition=CHOICE,
)  # fmt: skip
