"""Ways of computing token statistics and their gradient. No kernel knows an objective."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .. import compiler
from ..head import Head

log = logging.getLogger("errornorm")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A module of this package with `of_logits`, `of_hidden` or both."""

    name: str
    takes: tuple[str, ...]
    about: str

    def load(self) -> Any:
        module = importlib.import_module(f"{__name__}.{self.name}")
        compiler.keep_out()  # of what the module registered
        return module


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("reference", ("logits", "hidden"), "full logits and plain autograd: the specification"),
        Kernel("logits", ("logits",), "logits given: cache-sized blocks, no second (tokens x vocabulary) tensor"),
        Kernel(
            "chunked",
            ("logits", "hidden"),
            "hidden states and weight: no (tokens x vocabulary) tensor at all",
        ),
        Kernel("triton", ("logits", "hidden"), "the same two entries with Triton programs, for NVIDIA GPUs"),
        Kernel("vocab_parallel", ("hidden",), "the weight's rows split over ranks"),
    )
}


def choose(name: str, source: str, device: torch.device, head: Head | None = None) -> Kernel:
    """The kernel for statistics of `source` ("logits" or "hidden") on a device; logged once."""
    if name != "auto" and name not in KERNELS:
        raise ValueError(f"unknown kernel {name!r}; there are auto, {', '.join(KERNELS)}")
    sharded = head is not None and head.shard is not None
    if name == "auto":
        chosen = _automatic(source, device.type, sharded)
    else:
        # One name for both entries: "chunked" of logits is the kernel for logits.
        chosen = "logits" if (name, source) == ("chunked", "logits") else name
        if sharded != (chosen == "vocab_parallel"):
            raise ValueError(
                f"kernel={name!r} with {'a' if sharded else 'no'} vocabulary shard: use kernel='auto' "
                "(a sharded weight is what kernel='vocab_parallel' is for)"
            )
    kernel = KERNELS[chosen]
    if source not in kernel.takes:
        raise ValueError(f"kernel={name!r} takes {' or '.join(kernel.takes)}, not {source}")
    _say(chosen, source, device.type, name == "auto")
    return kernel


def _automatic(source: str, device: str, sharded: bool) -> str:
    if sharded:
        return "vocab_parallel"
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        return "triton"
    if device in ("cpu", "cuda"):
        return "logits" if source == "logits" else "chunked"
    return "reference"


@cache
def _say(chosen: str, source: str, device: str, automatic: bool) -> None:
    log.info("kernel=%s for %s on %s%s", chosen, source, device, " (chosen automatically)" if automatic else "")
