"""Logits are given: a cache-friendly pass for the statistics, another for the gradient, no (N, V) copy kept.

Shapes: N scored tokens of M positions, V vocabulary, R rows of one block.

Plain cross-entropy keeps the log-probabilities of all tokens for backward. Here backward reads the logits again, so
the gradient is the only (M, V) tensor, and with `overwrite` it takes the place of the logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..compiler import first_order, uncompiled
from ..head import Scored, widened
from ..partials import finish, slope
from ..stats import ALL, ALWAYS, EVERY, OBSERVED, TokenStats
from .rows import Stage, TorchRows


def _blocks(num: int, vocab: int, stage: Stage) -> Iterator[slice]:
    size = max(1, stage.block // max(1, vocab))
    return (slice(i, i + size) for i in range(0, num, size))


@uncompiled("backward")
class _LogitsStats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, scored: Scored, needs: frozenset[str], overwrite: bool, stage: Stage
    ) -> tuple[Tensor, ...]:
        names = [name for name in ALL if name in needs | ALWAYS]
        vocab = logits.shape[1]
        seen = []
        with torch.autocast(logits.device.type, enabled=False):
            for rows in _blocks(len(scored), vocab, stage):
                z = widened(logits[scored.index[rows]])
                stats = finish(stage.fold_(z, scored.targets[rows], needs).partial, vocab, needs)
                seen.append([stats.columns()[name] for name in names])
        empty = widened(logits.new_empty(0))
        columns = [torch.cat(c) for c in zip(*seen, strict=True)] or [empty.clone() for _ in names]
        ctx.save_for_backward(logits, scored.index, scored.targets, *columns)
        ctx.names, ctx.overwrite, ctx.stage = names, overwrite, stage
        ctx.mark_non_differentiable(*(c for n, c in zip(names, columns, strict=True) if n in OBSERVED))
        ctx.set_materialize_grads(False)
        return tuple(columns)

    @staticmethod
    @first_order
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, index, targets, *columns = ctx.saved_tensors
        stats = TokenStats(**dict(zip(ctx.names, columns, strict=True)))
        grad = TokenStats(**{n: g for n, g in zip(ctx.names, grads, strict=True) if g is not None})
        out = logits.detach() if ctx.overwrite else torch.zeros_like(logits)
        with torch.autocast(logits.device.type, enabled=False):
            if ctx.overwrite:
                ignored = torch.ones(len(out), dtype=torch.bool, device=out.device).index_fill_(0, index, False)
                out[ignored] = 0.0
            for rows in _blocks(len(index), logits.shape[1], ctx.stage):
                _grad_block(
                    out, logits, Scored(index[rows], targets[rows]), stats.map(lambda c: c[rows]),  # noqa: B023
                    grad.map(lambda c: c[rows]), ctx.stage,  # noqa: B023
                )  # fmt: skip
        return out, None, None, None, None


def _grad_block(out: Tensor, logits: Tensor, scored: Scored, stats: TokenStats, grad: TokenStats, stage: Stage) -> None:
    vocab = logits.shape[1]
    used = torch.stack([*grad.columns().values(), torch.zeros_like(stats.nll)]).any(0)
    out[scored.index[~used]] = 0.0
    index, stats, grad = scored.index[used], stats.take(used), grad.take(used)
    folded = stage.fold_(widened(logits[index]), scored.targets[used], frozenset())
    to_p = -torch.expm1(-stats.nll) / folded.partial.mass
    factor, target = stage.grad_(folded, to_p, slope(stats, grad), vocab)
    dz = folded.z.mul_(factor.unsqueeze(1)).scatter_add_(1, folded.column.unsqueeze(1), target.unsqueeze(1))
    out[index] = dz.to(out.dtype)


def of_logits(
    logits: Tensor,
    scored: Scored,
    needs: frozenset[str] = EVERY,
    overwrite: bool = False,
    stage: Stage | None = None,
) -> TokenStats:
    # A leaf, or what it is a view of, is the caller's own parameter: its gradient must not be itself. And rows that
    # share their memory would share their gradients.
    root = logits if logits._base is None else logits._base
    shared = any(step == 0 and size > 1 for step, size in zip(logits.stride(), logits.shape, strict=True))
    overwrite = overwrite and not root.is_leaf and not shared
    columns = _LogitsStats.apply(logits, scored, needs, overwrite, stage or TorchRows())  # type: ignore[no-untyped-call]
    return TokenStats(**dict(zip((n for n in ALL if n in needs | ALWAYS), columns, strict=True)))
