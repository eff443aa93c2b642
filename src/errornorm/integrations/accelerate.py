"""Accelerate: the same loop on one device or many, with its own checkpoints and trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .attach import Attachment
from .loop import num_targets

try:
    from accelerate import Accelerator
except ImportError as error:
    raise ImportError("this adapter needs accelerate: pip install errornorm[hf]") from error


def prepare(accelerator: Accelerator, handle: Attachment) -> None:
    """Keep the objective's state in `accelerator.save_state`."""
    accelerator.register_for_checkpointing(handle)


def num_items(accelerator: Accelerator, handle: Attachment, batches: Sequence[Mapping[str, Any]]) -> Tensor:
    """What to pass as `num_items_in_batch` with each of the micro-batches of one optimizer step.

    Accelerate divides each loss by the number of micro-batches, and averages gradients over processes: this undoes it.
    """
    parts: int = accelerator.num_processes * accelerator.gradient_accumulation_steps
    return num_targets(handle, batches) / parts


def step(accelerator: Accelerator, handle: Attachment, optimizer: torch.optim.Optimizer) -> bool:
    """In place of `optimizer.step()` and `optimizer.zero_grad()`. Says whether a step was taken."""
    taken = False
    if accelerator.sync_gradients:
        taken = handle.healthy()
        if not taken:
            optimizer.zero_grad(set_to_none=True)
    optimizer.step()
    optimizer.zero_grad()
    if accelerator.sync_gradients:
        handle.advance()
    return taken
