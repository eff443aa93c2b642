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
Corpora = dict[str, tuple[str, dict[str, object]]]  # by the name of a column: one of the scale's, and what is changed
MANUALS: Corpora = {"manuals": ("manuals", {})}
CORPORA: dict[str, Corpora] = {
    "tiny": MANUALS | {"en-fr": ("bilingual", {})},
    "small": MANUALS
    | {
        "proceedings": ("manuals", {"recipe.of": "europarl-en-fr", "recipe.words": 20}),
        "en-de": ("bilingual", {"recipe.languages": ["de"]}),
        "en-cs": ("bilingual", {"recipe.languages": ["cs"]}),
        "cs-en": ("bilingual", {"recipe.source": "cs", "recipe.languages": ["en"]}),
    },
    "paper": MANUALS,  # captions are crawled text there, and not clean
}


def cells(plan: Plan) -> list[Cell]:
    return [
        cell for name, (corpus, changes) in CORPORA[plan.scale.name].items()
        for cell in table_everyday.noisy(plan, NAME, corpus, NOISES, FAMILIES, f"{name} ", changes=changes)
    ]  # fmt: skip


ITEM = Item(
    name=NAME,
    where="not in the paper; it asks what Table 1 asks, of text that nobody looked at before",
    title="Corpora that nothing was chosen on",
    cells=cells,
    measures=MEASURES,
    ours="documentation of Python, English to French, with its markup, sentences of up to 30 words; proceedings of up "
    "to 20; and the captions of Table 1 in other directions",
    condition=CHOICE,
    families=FAMILIES,
)
