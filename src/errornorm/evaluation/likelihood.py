"""Plain likelihood of texts under a model: what perplexity is computed from, whatever the training objective."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..head import finest
from .encode import IGNORED


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A sum and a count: it adds up over batches and ranks."""

    total: float = 0.0
    tokens: int = 0

    def __add__(self, other: Likelihood) -> Likelihood:
        return Likelihood(self.total + other.total, self.tokens + other.tokens)

    @property
    def nll(self) -> float:
        return self.total / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nll, 700.0))


@torch.no_grad()
def likelihood(model: Any, batches: Iterable[dict[str, Tensor]]) -> Likelihood:
    """Of the labels, in batches as the model takes them."""
    causal = not model.config.is_encoder_decoder
    out = Likelihood()
    with evaluating(model):
        for batch in batches:
            batch = {name: value.to(model.device) for name, value in batch.items()}
            labels = batch.pop("labels") if causal else batch["labels"]  # a decoder's inputs are made from them
            logits = model(**batch).logits.float()
            if causal:
                logits, labels = logits[:, :-1], labels[:, 1:]
            nll = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
            out += Likelihood(float(finest(nll).sum()), int((labels != IGNORED).sum()))
    return out


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without dropout; then the model learns on, if it did before."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
