"""What crosses the ranks: every byte that is handed to torch's collectives, counted where it is handed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

CARRIERS = ("all_reduce", "all_gather")


class Sent(NamedTuple):
    kind: str  # of CARRIERS
    bytes: int  # of this rank's own part


@dataclass(slots=True)
class Traffic:
    """Collectives in the order in which this rank took part in them."""

    sent: list[Sent] = field(default_factory=list)

    def bytes(self, kind: str) -> int:
        return sum(one.bytes for one in self.sent if one.kind == kind)


@contextmanager
def counted() -> Iterator[Traffic]:
    """Inside, all-reduces and all-gathers are counted, also those of objects, which torch makes of tensors."""
    traffic = Traffic()
    places = [(module, name) for module in (dist, distributed_c10d) for name in CARRIERS]
    before = [getattr(module, name) for module, name in places]
    for (module, name), real in zip(places, before, strict=True):
        setattr(module, name, _counting(real, name, traffic))
    try:
        yield traffic
    finally:
        for (module, name), real in zip(places, before, strict=True):
            setattr(module, name, real)


def _counting(real: Callable[..., Any], name: str, traffic: Traffic) -> Callable[..., Any]:
    own = 0 if name == "all_reduce" else 1  # all_gather is given first where everyone's parts go

    @wraps(real)
    def call(*args: Any, **rest: Any) -> Any:
        tensor = args[own] if len(args) > own else rest["tensor"]
        assert isinstance(tensor, Tensor)
        traffic.sent.append(Sent(name, tensor.numel() * tensor.element_size()))
        return real(*args, **rest)

    return call
