"""Objectives: from per-token statistics to a per-token loss."""

from __future__ import annotations

import functools
import inspect
import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, ParamSpec

import torch
from torch import Tensor

from .context import Context
from .cutoffs import Cutoff, same
from .running import State
from .scores import Score
from .shares import share_of
from .stats import Guess, TokenStats
from .units import Layout, Unit

P = ParamSpec("P")


class Weighed(NamedTuple):
    weights: Tensor  # [N], 0: dropped
    cutoff: Tensor | None  # scalar, if there is one in force
    state: State


Weigh = Callable[[TokenStats, State, Context], Weighed]
Combine = Callable[[TokenStats, Tensor, Context], Tensor]
Preview = Callable[[TokenStats, Context], Tensor]  # a fair part of the batch -> its probable weights


def weighted_nll(stats: TokenStats, weights: Tensor, now: Context) -> Tensor:
    return weights * stats.nll


def _any_order(state: State, now: Context) -> None:
    return None


def keep_all(stats: TokenStats, now: Context) -> Tensor:
    return torch.ones_like(stats.nll)


@dataclass(frozen=True, slots=True)
class Objective:
    """`weigh` sees detached statistics, so weights never carry gradient; `combine` sees live ones.

    `preview` foretells `weigh` from a fair part of a batch. It may be wrong: that costs time only.
    `settle` is called once after each optimizer step.
    """

    weigh: Weigh
    preview: Callable[[State, Context], Preview]
    first: Callable[[State, Context], Tensor | None] = _any_order  # tokens that `preview` should see before the others
    combine: Combine = weighted_nll
    init: Callable[[], State] = dict
    settle: Callable[[State], State] = same
    needs: frozenset[str] = frozenset()  # statistics beyond nll and lse
    columns: frozenset[str] = frozenset()  # per-token columns from outside the model
    weigh_smoothing: bool = True  # whether the weight also applies to the label-smoothing term
    spec: str = "objective"  # the call that made it, with every parameter
    norm_threshold: float | None = None  # the error norm above which everything is dropped, if there is one

    def __repr__(self) -> str:
        return self.spec

    def __deepcopy__(self, memo: dict[int, Any]) -> Objective:
        return self  # nothing in it changes

    def __reduce__(self) -> str:
        raise TypeError(
            f"{self.spec.partition('(')[0]}: an objective cannot be pickled: detach() it before you pickle its model, "
            "and keep its text and the loss's state_dict(); errornorm.objective(text) makes it again"
        )

    def guess(self, state: State, now: Context) -> Guess:
        """What `combine` would send back to each statistic of a few tokens, if the preview is right."""
        preview = self.preview(state, now)

        def guess(stats: TokenStats, rows: Tensor) -> TokenStats:
            here = now.take(rows)
            weights = preview(stats, here)
            with torch.enable_grad():
                live = stats.map(lambda c: c.detach().requires_grad_())
                # Of the mean, which most will ask for: then not even a scale is left to correct.
                loss = self.combine(live, weights, here).sum() / max(1, now.layout.num_tokens)
                columns = live.columns()
                grads: tuple[Tensor | None, ...] = torch.autograd.grad(loss, tuple(columns.values()), allow_unused=True)
            return TokenStats(**{n: g for n, g in zip(columns, grads, strict=True) if g is not None})

        return Guess(guess, self.first(state, now))


def method(factory: Callable[P, Objective]) -> Callable[P, Objective]:
    """Give an objective the call that made it as its name, so that every result can say what it came from."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def build(*args: P.args, **kwargs: P.kwargs) -> Objective:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            bound.arguments[name] = _typed(factory.__name__, name, value, signature.parameters[name].default)
        listed = ", ".join(f"{name}={value!r}" for name, value in bound.arguments.items())
        return replace(factory(*bound.args, **bound.kwargs), spec=f"{factory.__name__}({listed})")

    return build


def _typed(method: str, name: str, value: Any, default: Any) -> Any:
    """The value in the type of the parameter's default: 2 and 2.0 are one objective, and one checkpoint."""
    if name == "start" and value == "auto":
        return value
    problem = f"{method}: {name}={value!r} must be "
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if isinstance(default, float):
        require(number and abs(value) <= sys.float_info.max, problem + "a number")  # not NaN, and a float can hold it
        return float(value)
    if isinstance(default, int):
        require(number and isinstance(value, numbers.Integral), problem + "a whole number")
        require(abs(value) < 2**63, problem + "a whole number of at most 64 bits")
        return int(value)
    require(not isinstance(default, str) or isinstance(value, str), problem + "a quoted word")
    return value


def require(condition: bool, message: str) -> None:
    """A parameter's check, in the words that the user reads."""
    if not condition:
        raise ValueError(message)


def require_share(name: str, value: float) -> None:
    number = isinstance(value, int | float)
    require(number and 0 <= value <= 1, f"{name}={value!r} is a share: give a number from 0 to 1")


def require_choice(name: str, value: str, *choices: str) -> None:
    require(value in choices, f"{name}={value!r} is not one of {', '.join(choices)}")


def reweight(
    weight: Callable[[TokenStats, Context], Tensor],
    needs: frozenset[str] = frozenset(),
    columns: frozenset[str] = frozenset(),
) -> Objective:
    """Soft, stateless weights, each from its own token: the preview is exact."""
    return Objective(
        weigh=lambda stats, state, now: Weighed(weight(stats, now), None, state),
        preview=lambda state, now: weight,
        needs=needs,
        columns=columns,
    )


@dataclass(frozen=True, slots=True)
class Guard:
    """What no cutoff may drop. A guard only ever keeps more: with one, less than the fraction may be dropped."""

    keep_first: int = 0  # tokens at the beginning of each sequence
    max_dropped: float = 1.0  # of the scored tokens of a sequence

    def __post_init__(self) -> None:
        require(self.keep_first >= 0, f"keep_first={self.keep_first} is a number of tokens: give 0 or more")
        require_share("max_dropped", self.max_dropped)

    def protect(self, dropped: Tensor, scores: Tensor, layout: Layout) -> Tensor:
        """The tokens that stay dropped."""
        if self.keep_first:
            place = layout.rank(torch.arange(len(dropped), device=dropped.device))
            dropped = dropped & (place >= self.keep_first)
        if self.max_dropped < 1:
            allowed = layout.lengths.new_tensor([share_of(self.max_dropped, num) for num in layout.lengths.tolist()])
            suspicion = torch.where(dropped, scores, -torch.inf)
            dropped = dropped & (layout.rank(-suspicion) < allowed[layout.sequence])
        return dropped


NO_GUARD = Guard()


def truncate(score: Score, cutoff: Cutoff, unit: Unit = "token", guard: Guard = NO_GUARD) -> Objective:
    """Drop the units with the highest scores."""

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        scores = score.of(stats, now)
        pooled = now.layout.pool(scores, unit)
        state = cutoff.observe(pooled, state)
        dropped, value = cutoff.drop(pooled, state)
        dropped = guard.protect(now.layout.spread(dropped, unit), scores, now.layout)
        return Weighed((~dropped).to(stats.nll.dtype), value, state)

    def preview(state: State, now: Context) -> Preview:
        if unit != "token":  # no part of a batch holds whole sequences
            return keep_all
        probably = cutoff.preview(state, now.layout.num_tokens)
        return lambda stats, here: (~probably(score.of(stats, here))).to(stats.nll.dtype)

    return Objective(weigh, preview, init=cutoff.init, settle=cutoff.settle, needs=score.needs, columns=score.columns)


def smoothed(inner: Objective, epsilon: float) -> Objective:
    """Label smoothing, exactly once: (1 - epsilon) of the objective and epsilon of the uniform target."""
    if epsilon == 0:
        return inner

    def combine(stats: TokenStats, weights: Tensor, now: Context) -> Tensor:
        smooth = stats.smooth * weights if inner.weigh_smoothing else stats.smooth
        return (1 - epsilon) * inner.combine(stats, weights, now) + epsilon * smooth

    return replace(inner, combine=combine, needs=inner.needs | {"mean_logit"})
