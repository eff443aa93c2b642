"""The vocabulary is split over ranks: each folds its rows of the weight, and the partials are merged by all-reduce.

Hidden states and targets are the same on every rank of the group. So are the statistics, and so is every decision
that follows from them. Each rank gets the gradient of its own rows of the weight, and all of the hidden states' one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ..head import Head, Scored, VocabShard
from ..partials import Partial, lift
from ..stats import EVERY, Guess, TokenStats
from . import speculate
from .rows import BITS, TorchRows

_EMPTY, _BAD = 1 << 40, 1 << 50  # more rows than there are: one number tells of all


@dataclass(frozen=True, slots=True)
class _Group:
    shard: VocabShard

    def merge(self, partial: Partial) -> Partial:
        peak = partial.peak.clone()
        dist.all_reduce(peak, dist.ReduceOp.MAX, self.shard.group)
        rest = torch.stack(lift(partial, peak).columns()[1:])
        dist.all_reduce(rest, group=self.shard.group)
        return Partial(peak, *rest, unit=partial.unit)

    def add(self, grad: Tensor) -> Tensor:
        dist.all_reduce(grad, group=self.shard.group)
        return grad

    def width(self, rows: int) -> int:
        return math.ceil(self.shard.vocab / dist.get_world_size(self.shard.group))


def of_hidden(
    hidden: Tensor, head: Head, scored: Scored, needs: frozenset[str] = EVERY, guess: Guess | None = None
) -> TokenStats:
    assert head.shard is not None
    _check(head, head.shard, hidden.device)
    return speculate.of_hidden(hidden, head, scored, needs, guess, stage=TorchRows(BITS), ranks=_Group(head.shard))


def _check(head: Head, shard: VocabShard, device: torch.device) -> None:
    """Every vocabulary entry must be held by exactly one rank: compare how many there are, and their sum.

    And all ranks must hear of a weight that is not finite: the others would wait for its rank.
    """
    rows, problem = len(head.weight), head.not_finite()

    def sums(start: int, count: int) -> list[int]:
        return [count, count * start + count * (count - 1) // 2]

    held = torch.tensor(sums(shard.start, rows), device=device)
    held[0] += _EMPTY * (not rows) + _BAD * (problem is not None)
    dist.all_reduce(held, group=shard.group)
    if held[0] >= _BAD:
        raise FloatingPointError(problem or "another rank's part of the head has NaN or Inf")
    if held[0] >= _EMPTY:
        raise ValueError(f"a rank holds no rows of the vocabulary of {shard.vocab}: use fewer ranks for it")
    if held.tolist() != sums(0, shard.vocab):
        raise ValueError(
            f"the shards do not add up to a vocabulary of {shard.vocab}: this rank's {rows} rows begin at "
            f"{shard.start}, and all ranks together hold {int(held[0])}"
        )
