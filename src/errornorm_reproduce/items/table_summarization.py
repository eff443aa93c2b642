"""Table 5: summarization."""

from __future__ import annotations

from ..cells import Cell
from ..plan import Claim, Condition, Item, Plan
from ..store import Row

NAME = "table-summarization"
MEASURES = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}
COLUMNS = tuple(f"{model}, {short}" for model in ("T5-small", "BART-base") for short in MEASURES.values())
PAPER = {
    "MLE": (42.19, 19.69, 39.04, 43.50, 20.59, 40.36),
    "Loss Truncation": (42.22, 19.68, 39.05, 43.22, 20.66, 40.44),
    "TaiLr": (41.53, 19.22, 38.33, 42.20, 19.66, 39.07),
    "ENT-Fraction": (42.63, 19.98, 39.57, 43.48, 20.29, 40.72),
    "ENT-Threshold": (42.37, 19.80, 39.27, 43.35, 20.30, 40.54),
}
CHOICE = Condition("summarization")
MODELS = {"T5-small": ("google-t5/t5-small", "summarize: "), "BART-base": ("facebook/bart-base", "")}
OURS = "ours"  # a small model that learnt the first sentences of descriptions from the rest of them


def cells(plan: Plan) -> list[Cell]:
    if plan.scale.name != "paper":
        return plan.compared(NAME, OURS, "summarization", CHOICE)
    return [
        cell
        for model, (name, prefix) in MODELS.items()
        for cell in plan.compared(NAME, model, "summarization", CHOICE,
                                  changes={"model.pretrained": name, "prefix": prefix})
    ]  # fmt: skip


def rouges(cell: Cell, row: Row, measure: str) -> dict[str, float]:
    ending = "_greedy" if measure.endswith("_greedy") else ""
    found = row["measures"]
    return {f"{cell.column}, {short}": found[name + ending] for name, short in MEASURES.items() if name in found}


def of_rouge(column: str, row: Row, measure: str) -> tuple[str, str | None]:
    ending = "_greedy" if measure.endswith("_greedy") else ""
    return next(name for name, short in MEASURES.items() if column.endswith(short)) + ending, None


ITEM = Item(
    name=NAME,
    where="Table 5",
    title="Summarization",
    cells=cells,
    measures={"ROUGE, beam 5": "rougeLsum", "ROUGE, greedy": "rougeLsum_greedy"},
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        Claim("truncating with error norm consistently outperforms all other methods", "ENT-Fraction",
              ("MLE", "Loss Truncation", "TaiLr")),
        Claim("Directly pruning out a fraction of data produces the best result", "ENT-Fraction", ("ENT-Threshold",)),
    ),
    words={
        "model": "fine-tuning T5-small and BART-base on the CNN/Daily Mail Summarization dataset",
        "measure": "Best validation rouge-1/2/LSum results",
    },
    ours="settings are chosen on the validation set, of two models with the first, and measured on the test set",
    condition=CHOICE,
    values=rouges,
    tested=of_rouge,
)  # fmt: skip
