"""Beyond the paper: Table 1 on a corpus that nothing was chosen on, neither a setting nor how a method works."""

from __future__ import annotations

from .. import methods
from ..plan import Item
from . import table_everyday
from .table_untranslated import CHOICE, MEASURES

NAME = "table-manuals"
FAMILIES = (methods.MLE, methods.ENT_FRACTION, methods.ENT_AUTO)

ITEM = Item(
    name=NAME,
    where="not in the paper; it asks what Table 1 asks, of text that nobody looked at before",
    title="A corpus that nothing was chosen on",
    cells=lambda plan: table_everyday.noisy(plan, NAME, "manuals", ("untranslated",), FAMILIES),
    measures=MEASURES,
    ours="documentation of Python, English to French, with its markup; sentences of up to 30 words",
    condition=CHOICE,
    families=FAMILIES,
)
