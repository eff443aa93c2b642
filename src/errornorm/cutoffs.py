"""Cutoffs: which units are dropped, given their scores (higher is more suspicious).

A cutoff is a handful of pure functions around a state. `observe` folds a training batch into it, also before
truncation starts; `settle` closes an optimizer step, and is where ranks meet; `drop` decides for this batch; `preview`
says from a fair part of a batch of `total` units what `drop` will probably decide for that part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import ranks
from .running import BINS, Histogram, State
from .shares import share_of

Scope = Literal["batch", "global", "running"]
DIGIT = 11  # bits of a score that the ranks count at a time
LONGEST = 2**24  # window; torch takes no quantile of a longer one
Probably = Callable[[Tensor], Tensor]  # scores -> which of them are probably dropped


class Dropped(NamedTuple):
    mask: Tensor  # [units]
    cutoff: Tensor  # scalar: what is above it is dropped (of equal scores at a fraction's cutoff, perhaps some)


def same(state: State) -> State:
    return state


def _ignore(scores: Tensor, state: State) -> State:
    return state


@dataclass(frozen=True, slots=True)
class Cutoff:
    drop: Callable[[Tensor, State], Dropped]
    preview: Callable[[State, int], Probably]
    observe: Callable[[Tensor, State], State] = _ignore
    settle: Callable[[State], State] = same
    init: Callable[[], State] = dict


def fixed(value: float) -> Cutoff:
    """Drop whatever scores above a number."""

    def drop(scores: Tensor, state: State) -> Dropped:
        return Dropped(scores > value, scores.new_tensor(value))

    return Cutoff(drop, lambda state, total: lambda scores: scores > value)


def top(scores: Tensor, count: int) -> Dropped:
    """Exactly `count` of them, the highest; of equal scores the earlier ones. The cutoff is the highest score kept."""
    if count <= 0:
        return Dropped(torch.zeros_like(scores, dtype=torch.bool), scores.new_tensor(math.inf))
    edge = scores.topk(count).values[-1]
    above, tied = scores > edge, scores == edge
    mask = above | (tied & (tied.cumsum(0) <= count - above.sum()))
    kept = scores[~mask]
    return Dropped(mask, kept.max() if len(kept) else scores.new_tensor(-math.inf))


def top_everywhere(scores: Tensor, fraction: float) -> Dropped:
    """As `top`, of the scores of all ranks, one after another; no score leaves its rank.

    The ranks count scores by their highest bits, then those that begin like the lowest one to drop by the next bits,
    down to the last: a few thousand numbers cross the ranks, however many tokens there are.
    """
    keys, high, wanted = _ordered(scores), -1, -1
    for shift in range((8 * scores.element_size() - 1) // DIGIT * DIGIT, -1, -DIGIT):
        begin = -(2 ** (DIGIT - 1)) if wanted < 0 else high << DIGIT
        mine = keys if wanted < 0 else keys[keys >> (shift + DIGIT) == high]
        counts = ranks.add(torch.bincount((mine >> shift) - begin, minlength=2**DIGIT)).tolist()
        if wanted < 0:
            wanted = share_of(fraction, sum(counts))
            if wanted == 0:
                return top(scores, 0)
        place = 2**DIGIT - 1
        while counts[place] < wanted:
            wanted, place = wanted - counts[place], place - 1
        high = begin + place
    edge, equal = high, counts[place]  # the lowest score to drop; how many have it, of which `wanted` go
    above, tied = keys > edge, keys == edge
    lowest = torch.iinfo(keys.dtype).min
    below = torch.cat([keys[keys < edge], keys.new_tensor([lowest])]).max()
    found = ranks.each(torch.stack([tied.sum(), below.long()]))
    before = int(found[: ranks.number(), 0].sum())
    mask = above | (tied & (tied.cumsum(0) + before <= wanted))
    kept = edge if equal > wanted else int(found[:, 1].max())
    value = scores.new_tensor(-math.inf) if kept == lowest else _ordered(keys.new_tensor([kept]), back=scores.dtype)[0]
    return Dropped(mask, value)


def _ordered(values: Tensor, back: torch.dtype | None = None) -> Tensor:
    """Floating-point numbers as whole ones in the same order; or back."""
    bits = {4: torch.int32, 8: torch.int64}[values.element_size()]
    whole = values if back is not None else (values + 0.0).view(bits)  # of two zeros one
    whole = whole ^ ((whole >> (8 * whole.element_size() - 1)) & torch.iinfo(bits).max)
    return whole if back is None else whole.view(back)


def top_fraction(fraction: float, everywhere: bool = False) -> Cutoff:
    """Drop exactly floor(fraction * units) units of this batch, on this rank or over all ranks together."""

    def drop(scores: Tensor, state: State) -> Dropped:
        if everywhere and ranks.size() > 1:
            return top_everywhere(scores, fraction)
        return top(scores, share_of(fraction, len(scores)))

    def preview(state: State, total: int) -> Probably:
        """Rank among those seen so far. When unsure drop: keeping wrongly costs more."""

        def probably(scores: Tensor) -> Tensor:
            doubt = max(0.0, 1 / max(1, len(scores)) - 1 / max(1, total))
            share = min(1.0, fraction + math.sqrt(fraction * (1 - fraction) * doubt))
            return top(scores, int(share * len(scores))).mask

        return probably

    return Cutoff(drop, preview)


def running_fraction(fraction: float, bounds: tuple[float, float]) -> Cutoff:
    """Drop the top fraction of a fading histogram of the previous optimizer steps.

    The cutoff is the edge of a bin whose dropped share is nearest to the fraction: where a single bin holds more than
    that (all norms are about 1 at first), nothing is dropped rather than everything.
    """
    seen = Histogram(*bounds)

    def lowest(state: State) -> int:
        """The number of the lowest bin that is dropped."""
        above = seen.above(state)
        miss = (above - fraction * above[0]).abs()
        return int(BINS - miss.flip(0).argmin())  # of equal ones the highest: drop less

    def drop(scores: Tensor, state: State) -> Dropped:
        first = lowest(state)
        value = seen.edge(first) if first < BINS else math.inf
        return Dropped(seen.place(scores) >= first, scores.new_tensor(value))

    def preview(state: State, total: int) -> Probably:
        return lambda scores: drop(scores, state).mask

    return Cutoff(drop, preview, seen.observe, seen.settle, seen.init)


def window_fraction(fraction: float, size: int, least: int) -> Cutoff:
    """Drop what scores above the (1 - fraction) quantile of the last `size` units of previous steps, over all ranks.

    Nothing is dropped before `least` units were seen.
    """

    def init() -> State:
        return {"window": torch.zeros(0, device="cpu"), "pending": torch.zeros(0, device="cpu")}

    def observe(scores: Tensor, state: State) -> State:
        return state | {"pending": torch.cat([state["pending"].to(scores.device), scores.float()])}

    def settle(state: State) -> State:
        new = ranks.gather(state["pending"])
        window = torch.cat([state["window"].to(new.device), _mixed(new)])
        return {"window": window[-size:], "pending": new[:0].clone()}

    def drop(scores: Tensor, state: State) -> Dropped:
        window = state["window"].to(scores.device)
        enough = fraction > 0 and len(window) >= max(1, least)
        cutoff = window.quantile(1 - fraction) if enough else window.new_tensor(math.inf)
        return Dropped(scores.to(window.dtype) > cutoff, cutoff)

    def preview(state: State, total: int) -> Probably:
        return lambda scores: drop(scores, state).mask

    return Cutoff(drop, preview, observe, settle, init)


def _mixed(scores: Tensor) -> Tensor:
    """In an order that does not depend on how a step was split, and of which every end has low and high ones alike."""
    golden = (math.sqrt(5) - 1) / 2
    order = (torch.arange(len(scores), dtype=torch.float64, device="cpu") * golden).frac().argsort()
    return scores.sort().values[order.to(scores.device)]


def fraction_of(fraction: float, scope: Scope, bounds: tuple[float, float]) -> Cutoff:
    """The cutoff of a fraction, by the population that it is a fraction of."""
    if scope == "running":
        return running_fraction(fraction, bounds)
    return top_fraction(fraction, everywhere=scope == "global")
