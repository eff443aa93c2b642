"""Speculate and correct: run backward in forward on a guess, then again on what the guess got wrong.

Shapes: N scored tokens of M positions, D hidden size, V vocabulary, R rows of one chunk.

The gradient is linear in the upstream gradient g of the statistics. So forward, which has the logits of a chunk at
hand, already adds up the gradient of a guess of g; backward scales that sum and adds the gradient of
(g - scale * guess), which is zero for most rows. Exact whatever the guess was: a bad guess costs time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ..compiler import first_order, uncompiled
from ..head import Head, Scored
from ..partials import Partial, finish, slope
from ..stats import ALL, ALWAYS, EVERY, OBSERVED, Guess, TokenStats
from .rows import Folded, Stage

MIN_ROWS = 256  # of a chunk: with fewer, repacking the weight for each product dominates
SPARE = 8  # one row in so many is kept free for what the last chunk puts right
NOISE = 8  # a guess is right if it is off by no more than this many roundings
RECENT = 24  # chunks that a guess is made from: with all before it, guessing would cost the square of the tokens


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
class _Sums:
    """Gradients under construction; None: not wanted."""

    hidden: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    begun: bool = False  # the weight's: before that it holds anything, since zeros would be written for nothing

    @staticmethod
    def zeros(like: tuple[Tensor | None, ...], wanted: tuple[bool, ...], dtype: torch.dtype) -> _Sums:
        hidden, weight, bias = (x if w else None for x, w in zip(like, wanted, strict=True))
        return _Sums(
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


class _Pass:
    """A pass over rows of the batch, a chunk at a time through one buffer of logits."""

    def __init__(self, plan: Plan, hidden: Tensor, weight: Tensor, bias: Tensor | None, rows: int, sums: _Sums) -> None:
        dtype = _working(hidden, weight)
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


def _working(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The type of logits and gradients under construction: float32 also for half-precision input."""
    return torch.promote_types(torch.promote_types(hidden.dtype, weight.dtype), torch.float32)


def _strided(num: int, size: int, device: torch.device, first: Tensor | None = None) -> list[Tensor]:
    """Chunks that are each a fair sample of the batch, also of one sorted by length or difficulty.

    With `first`, the first chunk has these rows beside a fair sample of the others, if they leave half of it free.
    """
    chunks = max(1, math.ceil(num / size))
    size = math.ceil(num / chunks)
    if first is None or chunks == 1 or 2 * len(first) > size:
        return [torch.arange(i, num, chunks, device=device) for i in range(chunks)]
    late = torch.ones(num, dtype=torch.bool, device=device).index_fill_(0, first, False)
    others = late.nonzero().squeeze(1)
    fair = others[torch.arange(size - len(first), device=device) * len(others) // (size - len(first))]
    rest = late.index_fill_(0, fair, False).nonzero().squeeze(1)
    return [torch.cat([first, fair]), *(rest[i :: chunks - 1] for i in range(chunks - 1))]


def _known(order: list[Tensor], number: int) -> list[Tensor]:
    """The chunks from which to guess about the last of these: each is a fair sample, and so are a few of them.

    With the last chunk of all, everything. The first one may have rows that were asked for.
    """
    if number == len(order) or number <= RECENT:
        return order[:number]
    return [order[0], *order[number - RECENT + 1 : number]]


def _consecutive(rows: Tensor, size: int) -> Iterator[Tensor]:
    return (rows[i : i + size] for i in range(0, len(rows), size))


def _explain(true: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
    """The scale by which most of `guess` became `true`, and what that leaves unexplained."""
    both = (true != 0) & (guess != 0)
    scale = (true[both] / guess[both]).median() if both.any() else true.new_ones(())
    rest = true - scale * guess
    return scale, rest.masked_fill(rest.abs() <= NOISE * torch.finfo(rest.dtype).eps * true.abs(), 0.0)


@uncompiled("backward")
class _HiddenStats(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, plan: Plan) -> tuple[Tensor, ...]:
        guess = plan.guess
        first = None if guess is None else guess.first
        order = _strided(len(plan.scored), plan.rows_per_chunk(weight), hidden.device, first)
        wanted = tuple(w and guess is not None for w in ctx.needs_input_grad[:3])
        spare = len(order[0]) // SPARE if guess is not None and len(order) > 1 and plan.linear else 0
        with torch.autocast(hidden.device.type, enabled=False):
            sums = _Sums.zeros((hidden, weight, bias), wanted, _working(hidden, weight))
            work = _Pass(plan, hidden, weight, bias, len(order[0]) + spare, sums)
            columns = work.weight.new_zeros(len(plan.names), len(plan.scored))
            guesses = work.weight.new_zeros(len(plan.own), len(plan.scored))
            for number, rows in enumerate(order, 1):
                folded, whole = work.fold(rows, plan.needs)
                fresh = finish(whole, plan.head.vocab, plan.needs).columns()
                columns[:, rows] = torch.stack([fresh[name] for name in plan.names])
                if guess is None:
                    continue
                seen = torch.cat(_known(order, number)).sort().values
                known = _named(columns[:, seen], plan.names)
                better = _stacked(guess.of(known, seen), plan.own, columns[0, seen]).nan_to_num_(0.0, 0.0, 0.0)
                if spare and number == len(order):  # everything is seen: put right what was a wrong guess before
                    late = (better - guesses).any(0).index_fill_(0, rows, False).nonzero().squeeze(1)[:spare]
                    folded, whole = work.fold_more(folded, whole, late)
                    rows = torch.cat([rows, late])
                now = better[:, torch.searchsorted(seen, rows.contiguous())]
                step = _named(now - guesses[:, rows], plan.own)
                work.add_gradient(folded, whole, rows, _named(columns[:, rows], plan.names), step)
                guesses[:, rows] = now
        out = columns.unbind()
        ctx.save_for_backward(hidden, weight, bias, plan.scored.index, plan.scored.targets, *out)
        ctx.plan = replace(plan, guess=None)
        ctx.speculation = (sums, guesses) if guess is not None else None
        ctx.mark_non_differentiable(*(c for n, c in zip(plan.names, out, strict=True) if n in OBSERVED))
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, _, _, *columns = ctx.saved_tensors
        plan: Plan = ctx.plan
        stats = TokenStats(**dict(zip(plan.names, columns, strict=True)))
        grad = TokenStats(**{n: g for n, g in zip(plan.names, grads, strict=True) if g is not None})
        with torch.autocast(hidden.device.type, enabled=False):
            rest = true = _stacked(grad, plan.own, stats.nll)
            speculation, ctx.speculation = ctx.speculation, None  # handed over: a second backward starts afresh
            if speculation is not None:
                sums, guess = speculation
                scale, rest = _explain(true, guess)
            # What a row adds to the weight's gradient, and so the rounding that a wrong guess leaves there.
            size = torch.linalg.vector_norm(hidden, dim=1, dtype=stats.nll.dtype)[plan.scored.index]
            if speculation is not None and (rest.abs() * size).sum() < (true.abs() * size).sum():
                sums.scale_(scale)
            else:  # more to correct than to compute: start afresh, which keeps the rounding of a bad guess out
                sums, rest = _Sums.zeros((hidden, weight, bias), ctx.needs_input_grad[:3], stats.nll.dtype), true
            todo = rest.any(0).nonzero().squeeze(1)
            limit = plan.rows_per_chunk(weight)
            work = _Pass(plan, hidden, weight, bias, min(len(todo), limit), sums)
            for rows in _consecutive(todo, limit):
                folded, whole = work.fold(rows, frozenset())
                work.add_gradient(folded, whole, rows, stats.take(rows), _named(rest[:, rows], plan.own))
            silent = ~true.any(0)
            mean = grad.columns().get("mean_logit") if plan.linear else None
            if mean is not None:
                silent &= mean == 0
                for rows in _consecutive((mean != 0).nonzero().squeeze(1), limit):
                    work.add_mean_gradient(rows, mean[rows])
            if sums.hidden is not None:
                plan.ranks.add(sums.hidden)[plan.scored.index[silent]] = 0.0  # exactly, also after a wrong guess
        sums.begin()
        out = zip((sums.hidden, sums.weight, sums.bias), (hidden, weight, bias), strict=True)
        return *(None if s is None else s.to(x.dtype) for s, x in out), None


def _stacked(grad: TokenStats, names: list[str], like: Tensor) -> Tensor:
    columns = grad.columns()
    return torch.stack([columns.get(name, torch.zeros_like(like)) for name in names])


def _named(stack: Tensor, names: list[str]) -> TokenStats:
    return TokenStats(**dict(zip(names, stack, strict=True)))


def of_hidden(
    hidden: Tensor,
    head: Head,
    scored: Scored,
    needs: frozenset[str] = EVERY,
    guess: Guess | None = None,
    *,
    stage: Stage,
    ranks: Ranks,
) -> TokenStats:
    """Statistics of `hidden[M, D]` under `head`, for the scored tokens."""
    # Grad mode is always off inside a Function's forward: decide here whether anything is worth guessing.
    usable = guess if torch.is_grad_enabled() else None
    bare = replace(head, weight=head.weight.detach(), bias=None)
    plan = Plan(bare, scored, needs, usable, stage, ranks)
    columns = _HiddenStats.apply(hidden, head.weight, head.bias, plan)  # type: ignore[no-untyped-call]
    return TokenStats(**dict(zip(plan.names, columns, strict=True)))
