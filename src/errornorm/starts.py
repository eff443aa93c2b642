"""When a method begins to act: likelihood before."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from . import scores
from .context import Context
from .objectives import Objective, Preview, Weighed, keep_all, require, weighted_nll
from .running import Histogram, State
from .stats import TokenStats

Start = int | Literal["auto"]
TOP = 0.1  # of the tokens
WARM = 1.1  # their error norm when a model is sure enough to be wrong
_NORMS = Histogram(*scores.error_norm.bounds, of="norms_")


def delayed(inner: Objective, start: Start) -> Objective:
    """Likelihood before optimizer step `start`; `inner` observes from the first step on.

    With "auto", likelihood until the model is warm: until the tenth of the tokens with the largest error norms, over
    the last steps, has a mean norm of 1.1. Before, a norm says how common a token is; from about then on, that the
    model expected another one. A model that was trained before can be warm after a step.
    """
    if start == "auto":
        return _when_warm(inner)
    require(isinstance(start, int) and start >= 0, f"start={start!r} is an optimizer step: give 0 or more, or 'auto'")
    if start == 0:
        return inner

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        weighed = inner.weigh(stats, state, now)
        if now.step >= start:
            return weighed
        return Weighed(torch.ones_like(weighed.weights), None, weighed.state)

    def preview(state: State, now: Context) -> Preview:
        return inner.preview(state, now) if now.step >= start else keep_all

    def combine(stats: TokenStats, weights: Tensor, now: Context) -> Tensor:
        return (inner.combine if now.step >= start else weighted_nll)(stats, weights, now)

    spec = f"delayed({inner.spec}, start={start})"
    return replace(inner, weigh=weigh, preview=preview, combine=combine, spec=spec)


def _when_warm(inner: Objective) -> Objective:
    require(
        inner.combine is weighted_nll,
        "start='auto' is for methods that weigh or drop tokens; give an optimizer step",
    )

    def init() -> State:
        return inner.init() | _NORMS.init() | {"warm": torch.zeros((), dtype=torch.bool, device="cpu")}

    def settle(state: State) -> State:
        if state["warm"]:  # for good, on all ranks: nothing is left to ask them
            return inner.settle(state)
        state = _NORMS.settle(inner.settle(state))
        return state | {"warm": state["warm"] | (_NORMS.top_mean(state, TOP) >= WARM)}

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        weights, cutoff, state = inner.weigh(stats, state, now)
        if state["warm"]:
            return Weighed(weights, cutoff, state)
        return Weighed(torch.ones_like(weights), None, _NORMS.observe(stats.error_norm, state))

    def preview(state: State, now: Context) -> Preview:
        return inner.preview(state, now) if state["warm"] else keep_all

    needs = inner.needs | scores.error_norm.needs
    spec = f"delayed({inner.spec}, start='auto')"
    return replace(inner, weigh=weigh, preview=preview, init=init, settle=settle, needs=needs, spec=spec)
