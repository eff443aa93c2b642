"""Keep torch.compile, and second derivatives, out of where they could only go wrong.

What depends on state, or has shapes that depend on the data, would be compiled again at every step.

A compiled training step then has one break at the loss. Torch's compiler is imported with the first loss, as it is
with the first optimizer, and not with this package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_waiting: list[tuple[type, str]] = []


def uncompiled(*names: str) -> Any:
    """A class decorator: these methods always run as they are written."""

    def register(owner: type) -> type:
        _waiting.extend((owner, name) for name in names)
        return owner

    return register


def keep_out() -> None:
    """Make it so; the first call does the work."""
    while _waiting:
        owner, name = _waiting.pop()
        static = isinstance(owner.__dict__[name], staticmethod)
        method = torch.compiler.disable(getattr(owner, name))
        setattr(owner, name, staticmethod(method) if static else method)


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward that is written by hand has no derivative of its own: say so instead of losing terms."""

    @functools.wraps(backward)
    def checked(*args: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused kernels have no second derivative: for create_graph=True use kernel='reference'"
            )
        return backward(*args)

    return checked
