"""Beyond the paper: Table 1 on corpora that nothing was chosen on, neither a setting nor how a method works."""

from __future__ import annotations

from .. import methods
from ..cells import Cell
from ..plan import Item, Plan
from . import table_everyday
from .table_untranslated import CHOICE, MEASURES

NAME = "table-unseen"
NOISES = ("untranslated",)
FAMILIES = (methods.MLE, methods.ENT_FRACTION, methods.ENT_AUTO)
DIRECTIONS: dict[str, dict[str, dict[str, object]]] = {  # of captions, by scale
    "tiny": {"en-fr": {}},
    "small": {
        "en-de": {"recipe.languages": ["de"]},
        "en-cs": {"recipe.languages": ["cs"]},
        "cs-en": {"recipe.source": "cs", "recipe.languages": ["en"]},
    },
    "paper": {},  # there they are crawled text, and not clean
}


def cells(plan: Plan) -> list[Cell]:
    out = table_everyday.noisy(plan, NAME, "manuals", NOISES, FAMILIES, "manuals ")
    for direction, changes in DIRECTIONS[plan.scale.name].items():
        out += table_everyday.noisy(plan, NAME, "bilingual", NOISES, FAMILIES, f"{direction} ", changes=changes)
    return out


ITEM = Item(
    name=NAME,
    where="not in the paper; it asks what Table 1 asks, of text that nobody looked at before",
    title="Corpora that nothing was chosen on",
    cells=cells,
    measures=MEASURES,
    ours="documentation of Python, English to French, with its markup, sentences of up to 30 words; and the captions "
    "of Table 1 in other directions",
    condition=CHOICE,
    families=FAMILIES,
)
