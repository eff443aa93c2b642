"""A training loop of your own: one call per optimizer step, right under accumulation and several ranks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import ranks
from .attach import Attachment
from .jobs import IGNORED

Batches = Sequence[Mapping[str, Any]]


def num_targets(handle: Attachment, batches: Batches) -> Tensor:
    """Tokens that count in an optimizer step: of all its micro-batches, over all ranks. At least 1."""
    skip = 0 if handle.encoder_decoder else 1  # a causal model never predicts the first token
    mine = sum(int((batch["labels"][..., skip:] != IGNORED).sum()) for batch in batches)
    return ranks.add(torch.tensor(mine)).clamp_min(1)


def train_step(
    model: nn.Module,
    handle: Attachment,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    max_grad_norm: float | None = None,
) -> float:
    """Forward and backward of some micro-batches, and one step. Returns the mean loss of all ranks together.

    NaN or Inf never reach the weights: FloatingPointError says in which step they turned up; or, with
    `attach(..., on_nan="skip")`, the step is left out and its loss is NaN.

    Args:
        model: The attached model, or what wraps it (DistributedDataParallel, an FSDP module, torch.compile).
        handle: What `attach` returned.
        optimizer: Of the model's parameters.
        batches: The micro-batches, each with labels. How they are split matters only to what is taken of each: a
            fraction with scope="batch", and normalize="kept".
        max_grad_norm: Clip the norm of the gradients to this.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> import errornorm, torch
        >>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50, n_positions=16)).train()
        >>> handle = errornorm.attach(model, errornorm.ent_fraction(0.1, scope="running"))
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        >>> tokens = torch.arange(20).view(4, 5)
        >>> halves = [{"input_ids": half, "labels": half} for half in tokens.split(2)]
        >>> losses = [train_step(model, handle, optimizer, halves) for _ in range(20)]
        >>> losses[-1] < losses[0]
        True
    """
    handle.expect_advance()
    count, world = num_targets(handle, batches), ranks.size()
    seen = torch.zeros((), dtype=torch.float64, device="cpu")
    try:
        for number, batch in enumerate(batches, 1):
            with contextlib.ExitStack() as stack:
                if number < len(batches) and isinstance(model, nn.parallel.DistributedDataParallel):
                    stack.enter_context(model.no_sync())  # average with the last one
                loss = model(**batch, num_items_in_batch=count).loss
                (loss * world).backward()  # gradients are averaged over ranks
            seen += loss.detach().cpu()
        taken = handle.healthy()
        if taken:
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
            optimizer.step()
    finally:
        optimizer.zero_grad(set_to_none=True)  # whatever happened, the next step starts anew
    handle.advance()
    return float(ranks.add(seen)) if taken else math.nan
