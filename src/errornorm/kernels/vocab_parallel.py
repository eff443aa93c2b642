"""The vocabulary is split over ranks: each folds its rows of the weight, and the partials are merged by all-reduce.

Hidden states and targets are the same on every rank of the group. So are the statistics, and so is every decision
that follows from them. Each rank gets the gradient of its own rows of the weight, and all of the hidden states' one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from ..head import Head, Scored, VocabShard
from ..partials import Partial, lift
from ..stats import EVERY, Guess, TokenStats
from . import speculate
from .rows import TorchRows


@dataclass(frozen=True, slots=True)
class _Group:
    shard: VocabShard

    def merge(self, partial: Partial) -> Partial:
        peak = partial.peak.clone()
        dist.all_reduce(peak, dist.ReduceOp.MAX, self.shard.group)
        rest = torch.stack(lift(partial, peak).columns()[1:])
        dist.all_reduce(rest, group=self.shard.group)
        return Partial(peak, *rest)

    def add(self, grad: Tensor) -> Tensor:
        dist.all_reduce(grad, group=self.shard.group)
        return grad


def of_hidden(
    hidden: Tensor, head: Head, scored: Scored, needs: frozenset[str] = EVERY, guess: Guess | None = None
) -> TokenStats:
    assert head.shard is not None
    return speculate.of_hidden(hidden, head, scored, needs, guess, stage=TorchRows(), ranks=_Group(head.shard))
