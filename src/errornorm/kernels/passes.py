"""A pass over rows of a batch: logits of a chunk in one buffer, folded, and turned into gradients.

Shapes: N scored tokens of M positions, D hidden size, V vocabulary, R rows of one chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from ..head import Head, Scored
from ..partials import Partial, slope
from ..stats import ALL, ALWAYS, OBSERVED, Guess, TokenStats
from .rows import Folded, Stage

MIN_ROWS = 256  # of a chunk: with fewer, repacking the weight for each product dominates


class Ranks(Protocol):
    """What crosses ranks when the vocabulary is split over them."""

    def merge(self, partial: Partial) -> Partial:
        """The partial of the whole vocabulary."""

    def add(self, grad: Tensor) -> Tensor:
        """The sum of every rank's part of a gradient."""

    def width(self, rows: int) -> int:
        """Entries of the vocabulary to make room for, with so many here: ranks need chunks of one size."""


class OneRank:
    def merge(self, partial: Partial) -> Partial:
        return partial

    def add(self, grad: Tensor) -> Tensor:
        return grad

    def width(self, rows: int) -> int:
        return rows


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is not differentiated."""

    head: Head  # its tensors are passed separately
    scored: Scored
    needs: frozenset[str]
    guess: Guess | None
    stage: Stage
    ranks: Ranks

    @property
    def names(self) -> list[str]:
        return [name for name in ALL if name in self.needs | ALWAYS]

    @property
    def linear(self) -> bool:
        """A linear head's mean logit is one dot product per token: it never touches the logits."""
        return self.head.softcap is None

    @property
    def own(self) -> list[str]:
        """The statistics whose gradient goes through the logits."""
        silent = ("mean_logit", *OBSERVED) if self.linear else OBSERVED
        return [name for name in self.names if name not in silent]

    def rows_per_chunk(self, weight: Tensor) -> int:
        return min(self.stage.max_rows, max(MIN_ROWS, self.stage.buffer // max(1, self.ranks.width(len(weight)))))


@dataclass(slots=True)
class Sums:
    """Gradients under construction; None: not wanted."""

    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    begun: bool = False  # the weight's: before that it holds anything, since zeros would be written for nothing

    @staticmethod
    def zeros(like: tuple[Tensor | None, ...], wanted: tuple[bool, ...], dtype: torch.dtype) -> Sums:
        hidden, weight, bias = (x if w else None for x, w in zip(like, wanted, strict=True))
        return Sums(
            None if hidden is None else torch.zeros_like(hidden, dtype=dtype),
            None if weight is None else torch.empty_like(weight, dtype=dtype, memory_format=torch.contiguous_format),
            None if bias is None else torch.zeros_like(bias, dtype=dtype),
        )

    def begin(self) -> None:
        if self.weight is not None and not self.begun:
            self.weight.zero_()
            self.begun = True

    def add_product(self, z: Tensor, h: Tensor) -> None:
        """To the weight's gradient."""
        assert self.weight is not None
        if self.begun:
            self.weight.addmm_(z.T, h)
        else:
            torch.mm(z.T, h, out=self.weight)
            self.begun = True

    def scale_(self, scale: Tensor) -> None:
        self.begin()
        for x in (self.hidden, self.weight, self.bias):
            if x is not None and scale != 1:
                x.mul_(scale)


class Pass:
    """A pass over rows of the batch, a chunk at a time through one buffer of logits."""

    def __init__(self, plan: Plan, hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: int, sums: Sums) -> None:
        dtype = working(hidden, weight)
        self.plan, self.hidden, self.sums = plan, hidden, sums
        self.weight = weight.to(dtype)
        self.bias = None if bias is None else bias.to(dtype) * (plan.head.scale * plan.stage.unit)
        self.buffer = self.weight.new_empty(rows, len(weight))
        if plan.linear and "mean_logit" in plan.needs:
            self.weight_sum = self.weight.sum(0)
            self.bias_sum = 0.0 if self.bias is None else self.bias.sum()

    def inputs(self, rows: Tensor) -> Tensor:
        return self.hidden[self.plan.scored.index[rows]].to(self.weight.dtype).mul_(self.plan.head.scale)

    def fold(self, rows: Tensor, needs: frozenset[str], at: int = 0) -> tuple[Folded, Partial]:
        """Logits of these rows in the buffer, folded; and their partial over the whole vocabulary."""
        plan, z = self.plan, self.buffer[at : at + len(rows)]
        h = self.inputs(rows).mul_(plan.stage.unit)
        if self.bias is None:
            torch.mm(h, self.weight.T, out=z)
        else:
            torch.addmm(self.bias, h, self.weight.T, out=z)
        shard = plan.head.shard
        inside = needs.intersection(plan.own)
        folded = plan.stage.fold_(z, plan.scored.targets[rows], inside, shard.start if shard else 0, plan.head.softcap)
        local = folded.partial
        if plan.linear and "mean_logit" in needs:
            local = replace(local, total=torch.mv(h, self.weight_sum) + self.bias_sum)
        return folded, plan.ranks.merge(local)

    def fold_more(self, folded: Folded, whole: Partial, rows: Tensor) -> tuple[Folded, Partial]:
        """The rows in the buffer, and these behind them."""
        more, rest = self.fold(rows, frozenset(), at=len(folded.z))
        return folded.join(more, self.buffer[: len(folded.z) + len(rows)]), whole.join(rest)

    def add_gradient(self, folded: Folded, whole: Partial, rows: Tensor, stats: TokenStats, grad: TokenStats) -> None:
        """Add the gradient of sum(grad * stats) over these rows; uses up the buffer."""
        used = torch.stack(list(grad.columns().values())).any(0)
        if int(used.sum()) % 2:  # products over an odd number of rows are slower: let one more add its zeros
            used = used.index_fill(0, used.logical_not().nonzero().squeeze(1)[:1], True)
        folded, order = folded.pack_(used)
        rows, stats, grad, whole = rows[order], stats.take(order), grad.take(order), whole.take(order)
        # not exp(peak - lse), which cancels for large logits
        to_p = -torch.expm1(-stats.nll) / whole.mass * ((folded.partial.peak - whole.peak) / whole.unit).exp()
        factor, target = self.plan.stage.grad_(folded, to_p, slope(stats, grad), self.plan.head.vocab)
        z, y = folded.z, folded.column
        factor, target = factor.unsqueeze(1), target.unsqueeze(1)
        scale = self.plan.head.scale
        if self.sums.hidden is not None:
            d = torch.mm(z, self.weight, out=self.weight.new_empty(len(rows), self.weight.shape[1]))
            d.mul_(factor).addcmul_(self.weight[y], target)
            self.sums.hidden.index_add_(0, self.plan.scored.index[rows], d, alpha=scale)
        if self.sums.weight is not None:
            h = self.inputs(rows)
            self.sums.add_product(z, h * factor)
            self.sums.weight.index_add_(0, y, h * target)
        if self.sums.bias is not None:
            self.sums.bias.addmv_(z.T, factor.squeeze(1), alpha=scale)
            self.sums.bias.index_add_(0, y, target.squeeze(1), alpha=scale)

    def add_mean_gradient(self, rows: Tensor, grad: Tensor) -> None:
        """The gradient of a linear head's mean logit."""
        vocab, scale = self.plan.head.vocab, self.plan.head.scale
        if self.sums.hidden is not None:
            outer = torch.outer(grad, self.weight_sum / vocab)
            self.sums.hidden.index_add_(0, self.plan.scored.index[rows], outer, alpha=scale)
        if self.sums.weight is not None:
            self.sums.begin()
            self.sums.weight.add_((self.inputs(rows) * grad.unsqueeze(1)).sum(0) / vocab)
        if self.sums.bias is not None:
            self.sums.bias.add_(grad.sum() * scale / vocab)


def working(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The type of logits and gradients under construction: float32 also for half-precision input."""
    return torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)
