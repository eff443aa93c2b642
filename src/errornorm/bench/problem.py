"""What everyone in the benchmark is given.

Shapes: N tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

NOISE = 0.1  # share of the tokens whose hidden state points at another token than the target


class Size(NamedTuple):
    tokens: int
    hidden: int
    vocab: int


@dataclass(frozen=True, slots=True)
class Problem:
    hidden: Tensor  # [N, D], a leaf
    weight: Tensor  # [V, D], a leaf
    targets: Tensor  # [N]

    @property
    def size(self) -> Size:
        return Size(len(self.targets), self.weight.shape[1], len(self.weight))

    def forget(self) -> None:
        """Drop the gradients of an earlier step."""
        self.hidden.grad = self.weight.grad = None


def problem(size: Size, seed: int = 0) -> Problem:
    """Hidden states that point at their target, a few at a wrong one: statistics like those of a trained model."""
    tokens, dim, vocab = size
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocab, dim, generator=g) * (3 / math.sqrt(dim))
    targets = torch.randint(vocab, (tokens,), generator=g)
    noisy = torch.rand(tokens, generator=g) < NOISE
    toward = torch.where(noisy, torch.randint(vocab, (tokens,), generator=g), targets)
    strength = torch.rand(tokens, generator=g)
    pull = torch.where(noisy, 4 + 2 * strength, 6 * strength)
    hidden = torch.randn(tokens, dim, generator=g) + pull.unsqueeze(1) * F.normalize(weight[toward], dim=1)
    return Problem(hidden.requires_grad_(), weight.requires_grad_(), targets)
