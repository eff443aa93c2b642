"""Speculate and correct: run backward in forward on a guess, then again on what the guess got wrong.

Shapes: N scored tokens of M positions, D hidden size, V vocabulary, R rows of one chunk.

The gradient is linear in the upstream gradient g of the statistics. So forward, which has the logits of a chunk at
hand, already adds up the gradient of a guess of g; backward scales that sum and adds the gradient of
(g - scale * guess), which is zero for most rows. Exact whatever the guess was: a bad guess costs time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..compiler import first_order, uncompiled
from ..head import Head, Scored
from ..partials import finish
from ..stats import EVERY, OBSERVED, Guess, TokenStats
from .passes import Pass, Plan, Ranks, Sums, working
from .rows import Stage

SPARE = 8  # one row in so many is kept free for what the last chunk puts right
NOISE = 8  # a guess is right if it is off by no more than this many roundings
RECENT = 24  # chunks that a guess is made from: with all before it, guessing would cost the square of the tokens


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
            sums = Sums.zeros((hidden, weight, bias), wanted, working(hidden, weight))
            work = Pass(plan, hidden, weight, bias, len(order[0]) + spare, sums)
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
                sums, rest = Sums.zeros((hidden, weight, bias), ctx.needs_input_grad[:3], stats.nll.dtype), true
            todo = rest.any(0).nonzero().squeeze(1)
            limit = plan.rows_per_chunk(weight)
            work = Pass(plan, hidden, weight, bias, min(len(todo), limit), sums)
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
