"""The specification: full logits, plain autograd, no tricks. The softmax is in float64, where the device has it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..head import Head, Scored, finest, widened
from ..stats import ALWAYS, EVERY, Guess, TokenStats


def of_logits(logits: Tensor, scored: Scored, needs: frozenset[str] = EVERY, overwrite: bool = False) -> TokenStats:
    z = widened(logits.index_select(0, scored.index))
    kind, z = z.dtype, finest(z)
    target = scored.targets.unsqueeze(1)
    lse = z.logsumexp(-1)
    log_p = z - lse.unsqueeze(1)
    p = log_p.exp()
    every: dict[str, Callable[[], Tensor]] = {
        "nll": lambda: -log_p.gather(1, target).squeeze(1),
        "lse": lambda: lse,
        "mean_logit": lambda: z.mean(-1),
        "off_target": lambda: p.square().scatter(1, target, 0.0).sum(-1),
        "entropy": lambda: -(p * log_p.masked_fill(log_p == -torch.inf, 0.0)).sum(-1),
    }
    if "margin" in needs:
        others = z.detach().scatter(1, target, -torch.inf)
        every["margin"] = lambda: (z.detach().gather(1, target) - others.amax(1, keepdim=True)).squeeze(1)
    return TokenStats(**{name: column().to(kind) for name, column in every.items() if name in needs | ALWAYS})


def of_hidden(
    hidden: Tensor, head: Head, scored: Scored, needs: frozenset[str] = EVERY, guess: Guess | None = None
) -> TokenStats:
    if head.shard is not None:
        raise ValueError("kernel='reference' needs the whole weight; use kernel='auto' for a sharded vocabulary")
    here = Scored(torch.arange(len(scored), device=hidden.device), scored.targets)
    return of_logits(head.logits(hidden.index_select(0, scored.index)), here, needs)
