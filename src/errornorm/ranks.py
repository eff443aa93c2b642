"""The few things that ranks tell each other. With one process they are no-ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
NOBODY = "nobody"  # in place of a group: this rank decides alone
_group: ContextVar[Any] = ContextVar("group", default=None)


@contextmanager
def over(group: Any) -> Iterator[None]:
    """Inside, a fraction is taken of the ranks of this group (None: of all ranks)."""
    token = _group.set(group)
    try:
        yield
    finally:
        _group.reset(token)


def _alone() -> bool:
    if _group.get() == NOBODY or not (dist.is_available() and dist.is_initialized()):
        return True
    return dist.get_world_size(_group.get()) == 1


def _wire(values: Tensor) -> Tensor:
    return values.cuda() if dist.get_backend(_group.get()) == "nccl" else values


def number() -> int:
    """Which of the ranks that hold different tokens this one is."""
    return 0 if _alone() else dist.get_rank(_group.get())


def size() -> int:
    """How many ranks hold different tokens."""
    return 1 if _alone() else dist.get_world_size(_group.get())


def add(counts: Tensor) -> Tensor:
    """The sum over the ranks."""
    if _alone():
        return counts
    total = _wire(counts.clone())
    dist.all_reduce(total, group=_group.get())
    return total.to(counts.device)


def each(values: Tensor) -> Tensor:
    """[ranks, N] the values [N] of every rank. N is the same on all of them."""
    if _alone():
        return values.unsqueeze(0)
    mine = _wire(values)
    parts = [torch.empty_like(mine) for _ in range(size())]
    dist.all_gather(parts, mine, _group.get())
    return torch.stack(parts).to(values.device)


def objects(value: T) -> list[T]:
    """What every rank has to say, whatever it is."""
    if _alone():
        return [value]
    parts: list[Any] = [None] * size()
    dist.all_gather_object(parts, value, _group.get())
    return parts


def gather(values: Tensor) -> Tensor:
    """The values [N] of the ranks, one after another. N may differ."""
    if _alone():
        return values
    lengths = each(torch.tensor([len(values)], device=values.device)).flatten().tolist()
    padded = values.new_zeros(max(lengths))
    padded[: len(values)] = values
    return torch.cat([part[:length] for part, length in zip(each(padded), lengths, strict=True)])
