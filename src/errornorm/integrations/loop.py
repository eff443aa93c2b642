"""A training loop of your own: one call per optimizer step, right under accumulation and several ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import ranks
from .attach import Attachment

Batches = Sequence[Mapping[str, Any]]


def num_targets(handle: Attachment, batches: Batches) -> Tensor:
    """Tokens that count in an optimizer step: of all its micro-batches, over all ranks."""
    skip = 0 if handle.encoder_decoder else 1  # a causal model never predicts the first token
    ignore = handle.loss.ignore_index
    mine = sum(int((batch["labels"][..., skip:] != ignore).sum()) for batch in batches)
    return ranks.add(torch.tensor(mine)).clamp_min(1)


def train_step(
    model: nn.Module,
    handle: Attachment,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    max_grad_norm: float | None = None,
) -> float:
    """Forward and backward of some micro-batches, and one step. Returns the mean loss of all ranks together.

    Args:
        model: The attached model, or what wraps it (DistributedDataParallel, an FSDP module, torch.compile).
        handle: What `attach` returned.
        optimizer: Of the model's parameters.
        batches: The micro-batches, each with labels. Their split does not matter.
        max_grad_norm: Clip the norm of the gradients to this.
    """
    count, world = num_targets(handle, batches), ranks.size()
    seen = torch.zeros((), dtype=torch.float64)
    for number, batch in enumerate(batches, 1):
        with contextlib.ExitStack() as stack:
            if number < len(batches) and isinstance(model, nn.parallel.DistributedDataParallel):
                stack.enter_context(model.no_sync())  # average with the last one
            loss = model(**batch, num_items_in_batch=count).loss
            (loss * world).backward()  # gradients are averaged over ranks
        seen += loss.detach().double().cpu()
    if handle.healthy():
        if max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    handle.advance()
    return float(ranks.add(seen))
