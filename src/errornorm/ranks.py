"""The few things that ranks tell each other. With one process they are no-ops."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def _wire(values: Tensor) -> Tensor:
    return values.cuda() if dist.get_backend() == "nccl" else values


def add(counts: Tensor) -> Tensor:
    """The sum over all ranks."""
    if _alone():
        return counts
    total = _wire(counts.clone())
    dist.all_reduce(total)
    return total.to(counts.device)


def gather(values: Tensor) -> tuple[Tensor, int]:
    """The values [N] of all ranks, one after another, and where this rank's begin. N may differ."""
    if _alone():
        return values, 0
    world, rank = dist.get_world_size(), dist.get_rank()
    mine = _wire(values)
    length = mine.new_tensor([len(mine)], dtype=torch.int64)
    lengths = [torch.empty_like(length) for _ in range(world)]
    dist.all_gather(lengths, length)
    sizes = [int(n) for n in lengths]
    padded = mine.new_zeros(max(sizes))
    padded[: len(mine)] = mine
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    everyone = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    return everyone.to(values.device), sum(sizes[:rank])
