"""The same loss and gradients in float64, by the reference kernel: what everyone's error is measured against.

Shapes: N tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ..context import Context
from ..surface import Objective, TokenStats, objective, token_stats
from ..units import Layout
from .problem import Problem

SLICE = 2**23  # elements of the logits of one slice of tokens


class Errors(NamedTuple):
    loss: float  # relative
    gradient: float  # the largest, relative to the largest gradient


class _Exact(NamedTuple):
    loss: float
    hidden: Tensor
    weight: Tensor


class Truth:
    """Exact results for a problem: the weights from the statistics of all tokens, then the gradient, in slices."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._hidden = problem.hidden.detach().double()
        self._weight = problem.weight.detach().double()
        self._known: dict[str, _Exact] = {}

    def threshold(self, fraction: float) -> float:
        """The error norm above which that share of the tokens lies."""
        return float(self._stats.error_norm.quantile(1 - fraction))

    def errors(self, spec: str, loss: Tensor) -> Errors:
        """How far a step of this objective was off, by its loss and the gradients that it left behind."""
        if spec not in self._known:
            self._known[spec] = self._exact(objective(spec))
        exact = self._known[spec]
        pairs = (self.problem.hidden.grad, exact.hidden), (self.problem.weight.grad, exact.weight)
        return Errors(abs(float(loss) / exact.loss - 1), max(_worst(seen, true) for seen, true in pairs))

    @cached_property
    def _stats(self) -> TokenStats:
        with torch.no_grad():
            parts = [self._slice(self._hidden, self._weight, rows) for rows in self._slices()]
        names = parts[0].columns()
        return TokenStats(**{name: torch.cat([part.columns()[name] for part in parts]) for name in names})

    def _exact(self, method: Objective) -> _Exact:
        tokens = len(self._hidden)
        now = Context(0, 0, Layout(None, None, tokens), torch.arange(tokens))
        weights = method.weigh(self._stats, method.init(), now).weights
        hidden, weight = (x.clone().requires_grad_() for x in (self._hidden, self._weight))
        total = 0.0
        for rows in self._slices():
            loss = method.combine(self._slice(hidden, weight, rows), weights[rows], now.take(rows)).sum() / tokens
            loss.backward()
            total += float(loss.detach())
        assert hidden.grad is not None
        assert weight.grad is not None
        return _Exact(total, hidden.grad, weight.grad)

    def _slice(self, hidden: Tensor, weight: Tensor, rows: Tensor) -> TokenStats:
        return token_stats(
            hidden=hidden[rows], weight=weight, targets=self.problem.targets[rows], kernel="reference",
            statistics=("error_norm",),
        )  # fmt: skip

    def _slices(self) -> Iterator[Tensor]:
        return iter(torch.arange(len(self._hidden)).split(max(1, SLICE // len(self._weight))))


def _worst(seen: Tensor | None, true: Tensor) -> float:
    assert seen is not None
    return float((seen - true).abs().max() / true.abs().max())
