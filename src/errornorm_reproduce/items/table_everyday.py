"""Beyond the paper: Tables 1 and 2 on another corpus, with the settings that were chosen on the first."""

from __future__ import annotations

from collections.abc import Sequence

from .. import methods
from ..cells import Cell
from ..methods import Family
from ..plan import Claim, Item, Plan
from .table_untranslated import CHOICE, MEASURES

NAME, CORPUS = "table-everyday", "everyday"
NOISES = ("untranslated", "misordered")
FAMILIES = (
    methods.MLE, methods.ENT_FRACTION, methods.ENT_THRESHOLD, methods.ENT_LOW_THRESHOLD, methods.ENT_AUTO,
)  # fmt: skip


def noisy(
    plan: Plan, item: str, corpus: str, noises: Sequence[str], families: tuple[Family, ...], prefix: str = "",
    **more: object,
) -> list[Cell]:  # fmt: skip
    """Clean text once, then each noise at each share; of columns that begin so."""
    conditions = [("0%", ())] + [
        (f"{noise} {share:.0%}", ((noise, share),)) for noise in noises for share in plan.scale.noise if share
    ]
    return [
        cell for column, noise in conditions
        for cell in plan.compared(item, prefix + column, corpus, CHOICE, families, noise=noise, **more)
    ]  # fmt: skip


ITEM = Item(
    name=NAME,
    where="not in the paper; it asks what Tables 1 and 2 ask, of sentences that no setting was chosen on",
    title="Another corpus",
    cells=lambda plan: noisy(plan, NAME, CORPUS, NOISES, FAMILIES),
    measures=MEASURES,
    claims=(Claim("Error Norm Truncation consistently improves performance with higher injection percentages",
                  "ENT-Fraction", columns=("untranslated 20%", "untranslated 50%")),),
    ours="short sentences of everyday life (Tatoeba), English to French",
    condition=CHOICE,
    families=FAMILIES,
)  # fmt: skip
