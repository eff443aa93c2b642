"""Beyond the paper: text that was never translated, as it was published."""

from __future__ import annotations

from ..plan import Claim, Item
from .table_untranslated import CHOICE, MEASURES

NAME, COLUMN = "table-natural-noise", "proceedings"

ITEM = Item(
    name=NAME,
    where="not in the paper; it asks what Table 1 asks, with noise that nobody put in",
    title="Naturally untranslated text",
    cells=lambda plan: plan.compared(NAME, COLUMN, "natural", CHOICE),
    measures=MEASURES,
    claims=(
        Claim("Truncating with error norm is the most robust method against untranslated sentence", "ENT-Fraction",
              ("MLE", "Loss Truncation", "TaiLr")),
    ),
    ours="proceedings of 2011, whose French edition was not fully translated; tested on translated text",
    condition=CHOICE,
)  # fmt: skip
