"""The output head of a model, and which tokens of a batch are scored.

Shapes: N scored tokens of a batch of M positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WITHOUT_FLOAT64 = {"mps"}  # kinds of devices


def widened(x: Tensor) -> Tensor:
    """In float32 at least: near 1.4 two bfloat16 numbers are 0.008 apart, too coarse for a cutoff."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def finest(x: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return x if x.device.type in WITHOUT_FLOAT64 else x.double()


@dataclass(frozen=True, slots=True)
class VocabShard:
    """Which part of the vocabulary this rank's weight holds.

    Args:
        start: Vocabulary entry of the first row of the local weight.
        vocab: Size of the whole vocabulary.
        group: The process group over which the vocabulary is split (None: all ranks).
    """

    start: int
    vocab: int
    group: Any = None


@dataclass(frozen=True, slots=True)
class Head:
    """From hidden states to logits: cap(scale * (hidden @ weight.T + bias)), cap(x) = softcap tanh(x / softcap)."""

    weight: Tensor  # [V, D], or this rank's rows of it
    bias: Tensor | None = None  # [V]
    scale: float = 1.0
    softcap: float | None = None
    shard: VocabShard | None = None

    @property
    def vocab(self) -> int:
        return self.shard.vocab if self.shard else len(self.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """The plain formula: what every kernel must agree with."""
        bias = None if self.bias is None else widened(self.bias)
        logits = torch.nn.functional.linear(widened(hidden), widened(self.weight), bias) * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)

    def not_finite(self) -> str | None:
        """What is NaN or Inf in it, if anything. A bias of -inf masks an entry."""
        weight = self.weight.detach()
        if not torch.sum(weight, dtype=widened(weight[:0]).dtype).isfinite():
            rows = (~weight.isfinite()).any(1).nonzero().squeeze(1)
            if len(rows):
                return f"{len(rows)} rows of the head's weight have NaN or Inf, the first is {int(rows[0])}"
        bias = self.bias
        if bias is not None and not (bias.detach().isfinite() | (bias.detach() == -torch.inf)).all():
            return "the head's bias has NaN or +Inf"
        return None


@dataclass(frozen=True, slots=True)
class Scored:
    """The tokens that count: where they stand in the flattened batch, and what they should be."""

    index: Tensor  # [N] in 0 .. M - 1
    targets: Tensor  # [N] in 0 .. V - 1

    def __len__(self) -> int:
        return len(self.index)
