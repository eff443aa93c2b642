"""One setting for each method: the best of the paper's on the development set, chosen once, recorded as rows."""

from __future__ import annotations

from collections.abc import Iterable

from .cells import Cell
from .methods import Family
from .plan import LOWER, Condition, Plan
from .store import Store

ITEM = "choice"
BY_TASK = {"translation": "bleu", "summarization": "rougeLsum", "language-modeling": "perplexity"}


def cells(plan: Plan, condition: Condition, families: Iterable[Family]) -> list[Cell]:
    """A cell for each candidate of the methods that have several; seed 0."""
    return [
        cell for family in plan.rows(list(families)) if len(family.candidates) > 1
        for cell in _candidates(plan, condition, family)
    ]  # fmt: skip


def _candidates(plan: Plan, condition: Condition, family: Family) -> list[Cell]:
    column = ", ".join((condition.corpus, *(f"{name} {share:.0%}" for name, share in condition.noise)))
    return [
        plan.scale.cell(ITEM, family.name, column, condition.corpus, objective=objective, noise=condition.noise,
                        split="valid", code=family.code)
        for objective in family.objectives(plan.scale.start(condition.corpus))
    ]  # fmt: skip


def best(plan: Plan, condition: Condition, families: Iterable[Family], store: Store) -> dict[str, str]:
    """The objective of each method whose candidates all have rows. Of equal ones, the first."""
    measure = BY_TASK[plan.scale.tasks[condition.corpus]["task"]]
    sign = -1 if measure in LOWER else 1
    out = {}
    for family in plan.rows(list(families)):
        if len(family.candidates) < 2:
            continue
        found = [(cell, store.find(cell)) for cell in _candidates(plan, condition, family)]
        scores = [(sign * row["measures"][measure], cell.objective) for cell, row in found if row is not None]
        if len(scores) == len(found):
            out[family.name] = max(scores, key=lambda pair: pair[0])[1]
    return out
