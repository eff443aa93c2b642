"""Table 3: the perplexity of a language model."""

from __future__ import annotations

from ..plan import Claim, Condition, Item

NAME, COLUMN = "table-lm", "perplexity"
PAPER = {
    "MLE": 25.88,
    "Loss Truncation": 24.64,
    "TaiLr": 25.62,
    "ENT-Fraction": 24.50,
    "ENT-Threshold": 24.30,
}
CHOICE = Condition("lm")

ITEM = Item(
    name=NAME,
    where="Table 3",
    title="Language modelling",
    cells=lambda plan: plan.compared(NAME, COLUMN, "lm", CHOICE),
    measures={"Perplexity (lower is better)": "perplexity"},
    paper={name: {COLUMN: number} for name, number in PAPER.items()},
    claims=(
        Claim("Truncating with error norm outperforms the MLE baseline by 1.38 perplexity", "ENT-Fraction"),
        Claim("Truncating with error norm outperforms truncating with loss for a fixed fraction", "ENT-Fraction",
              ("Loss Truncation",)),
        Claim("Truncating to a given threshold outperforms all existing methods by lowering 1.58 perplexity compared "
              "to the MLE baseline", "ENT-Threshold", ("MLE", "Loss Truncation", "TaiLr")),
    ),
    words={
        "model": "a GPT2-large ... model on the WikiText-103 dataset ... for 5 epochs from scratch",
        "measure": "the validation perplexity",
    },
    ours="settings are chosen on the validation set and measured on the test set",
    condition=CHOICE,
)  # fmt: skip
