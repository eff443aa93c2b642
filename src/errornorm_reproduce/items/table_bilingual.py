"""Table 7: a model for each direction."""

from __future__ import annotations

from .. import methods
from ..cells import Cell
from ..plan import Claim, Item, Plan
from .table_untranslated import CHOICE

NAME = "table-bilingual"
COLUMNS = ("en-cs", "en-ru", "en-zh")
PAPER = {
    "MLE": (25.2, 24.6, 12.5),
    "Loss Truncation": (25.2, 25.3, 12.8),
    "TaiLr": (25.1, 25.4, 13.2),
    "ENT-Fraction": (25.3, 25.5, 13.1),
    "ENT-Threshold": (25.7, 25.5, 13),
}
LANGUAGES = {"tiny": ("fr",), "small": ("cs", "de"), "paper": ("cs", "ru", "zh")}


def cells(plan: Plan) -> list[Cell]:
    out = []
    for language in LANGUAGES[plan.scale.name]:
        changes = {} if plan.scale.name == "tiny" else {"recipe.languages": [language]}
        out += plan.compared(NAME, f"en-{language}", "bilingual", CHOICE, methods.PAPER, changes=changes)
    return out


ITEM = Item(
    name=NAME,
    where="Table 7",
    title="A model for each direction",
    cells=cells,
    measures={"BLEU, beam 5": "bleu", "BLEU, greedy": "bleu_greedy"},
    paper={name: dict(zip(COLUMNS, numbers, strict=True)) for name, numbers in PAPER.items()},
    claims=(
        Claim("ENT-fraction outperforms Loss Truncation in all three directions", "ENT-Fraction", ("Loss Truncation",)),
        Claim("ENT-Threshold is able to outperform all previous methods in directions En-Cs and En-Ru",
              "ENT-Threshold", ("MLE", "Loss Truncation", "TaiLr"), ("en-cs", "en-ru")),
    ),
    words={
        "data": "models for the following three directions en-{cs,ru,zh} from the ParaCrawl V9 corpus ... ... "
        "BLEU ... results on the WMT22 test set",
    },
    ours="the paper does not say how settings were chosen; these are Table 1's",
    condition=CHOICE,
    families=methods.PAPER,
)  # fmt: skip
