"""One setting for each method: the best of the paper's on the development set, chosen once, recorded as rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from errornorm.evaluation.runs import LOWER

from .cells import Cell
from .methods import Family
from .plan import Condition, Plan
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


@dataclass(frozen=True)
class Tried:
    """A candidate, and what it reached on the development set."""

    family: str
    objective: str
    measure: str
    score: float
    best: bool


def tried(plan: Plan, condition: Condition, families: Iterable[Family], store: Store) -> list[Tried]:
    """The candidates of each method whose candidates all have rows. Of equal ones, the first is the best."""
    measure = BY_TASK[plan.scale.tasks[condition.corpus]["task"]]
    out = []
    for family in plan.rows(list(families)):
        found = [(cell, store.find(cell)) for cell in _candidates(plan, condition, family)]
        scores = {cell.objective: float(row["measures"][measure]) for cell, row in found if row is not None}
        if len(family.candidates) > 1 and len(scores) == len(found):
            known = {text: score for text, score in scores.items() if not math.isnan(score)} or scores
            top = (min if measure in LOWER else max)(known, key=lambda objective: known[objective])
            out += [Tried(family.name, text, measure, score, text == top) for text, score in scores.items()]
    return out


def best(plan: Plan, condition: Condition, families: Iterable[Family], store: Store) -> dict[str, str]:
    """The objective of each method whose candidates all have rows."""
    return {one.family: one.objective for one in tried(plan, condition, families, store) if one.best}
