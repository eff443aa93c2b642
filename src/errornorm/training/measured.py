"""What a run is measured by, and the numbers of several sets as one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..evaluation.judge import BY_TASK, Question
from .config import TrainConfig


def question(config: TrainConfig, names: Any) -> Question:
    """What the evaluation part of a configuration asks."""
    e = config.evaluation
    return Question(names, e.beams, e.max_new_tokens, config.data.max_length, e.limit, e.tokenize, e.flores_model)


def measures(config: TrainConfig) -> Sequence[str]:
    """What is measured at the end. An empty list is a choice too."""
    return BY_TASK[config.task] if config.evaluation.metrics is None else config.evaluation.metrics


def mean_of(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each number; counts are summed, and settings are as they are."""
    if len(rows) == 1:
        return rows[0]
    total = {name: sum(row[name] for row in rows) for name in rows[0]}
    means = {name: value if name in ("num", "tokens") else value / len(rows) for name, value in total.items()}
    return means | {name: rows[0][name] for name in ("beams",) if name in rows[0]}


def sets_of(rows: dict[str, dict[str, float]]) -> dict[str, Any]:
    """What to say of each set, beside the means, if there are several."""
    return {"sets": rows} if len(rows) > 1 else {}
