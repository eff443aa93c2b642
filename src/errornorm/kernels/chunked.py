"""Hidden states and weight, a chunk of tokens at a time: tokens x vocabulary is never materialised."""

from __future__ import annotations

from torch import Tensor

from ..head import Head, Scored
from ..stats import EVERY, Guess, TokenStats
from . import speculate
from .logits import of_logits
from .passes import OneRank
from .rows import BITS, TorchRows

__all__ = ["of_hidden", "of_logits"]


def of_hidden(
    hidden: Tensor, head: Head, scored: Scored, needs: frozenset[str] = EVERY, guess: Guess | None = None
) -> TokenStats:
    return speculate.of_hidden(hidden, head, scored, needs, guess, stage=TorchRows(BITS), ranks=OneRank())
