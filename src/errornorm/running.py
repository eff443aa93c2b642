"""What the last optimizer steps were like.

Sums and counts add up over micro-batches, and over ranks at the end of a step, and fade: it does not matter how a batch
is split. `observe` folds a batch in; `settle` closes a step, and only then its numbers count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from . import ranks
from .head import finest

State = dict[str, Tensor]
BINS = 8192
DECAY = 0.9  # per optimizer step


@dataclass(frozen=True, slots=True)
class Histogram:
    """A fading histogram of the *previous* optimizer steps.

    Args:
        low, high: Where it begins and ends; what lies outside counts at the edge.
        of: A word before its entries in the state, where there are others.
        bins: How many.
        decay: Per optimizer step.
    """

    low: float
    high: float
    of: str = ""
    bins: int = BINS
    decay: float = DECAY

    def place(self, scores: Tensor) -> Tensor:
        """The number of the bin of each score."""
        return ((finest(scores) - self.low) * (self.bins / (self.high - self.low))).long().clamp_(0, self.bins - 1)

    def edge(self, number: int) -> float:
        """Where a bin begins."""
        return self.low + number * ((self.high - self.low) / self.bins)

    def init(self) -> State:
        return {
            f"{self.of}pending": torch.zeros(self.bins, dtype=torch.int64, device="cpu"),
            f"{self.of}counts": torch.zeros(self.bins, dtype=torch.float64, device="cpu"),
        }

    def observe(self, scores: Tensor, state: State) -> State:
        new = torch.bincount(self.place(scores), minlength=self.bins)
        return state | {f"{self.of}pending": state[f"{self.of}pending"].to(new.device) + new}

    def settle(self, state: State) -> State:
        new = ranks.add(state[f"{self.of}pending"])
        counts = state[f"{self.of}counts"] * self.decay + new.cpu()
        return state | {f"{self.of}pending": torch.zeros_like(new), f"{self.of}counts": counts}

    def above(self, state: State) -> Tensor:
        """[bins + 1] how many lie in a bin or a higher one."""
        counts = state[f"{self.of}counts"]
        return torch.cat([counts.flip(0).cumsum(0).flip(0), counts.new_zeros(1)])

    def top_mean(self, state: State, share: float) -> float:
        """The mean of the highest ones; the lower end while nothing was seen."""
        counts = state[f"{self.of}counts"].flip(0)
        wanted = share * counts.sum()
        if wanted == 0:
            return self.low
        taken = (wanted - (counts.cumsum(0) - counts)).clamp(min=0).minimum(counts)
        middles = self.low + (torch.arange(self.bins, 0, -1, dtype=torch.float64, device="cpu") - 0.5) * (
            (self.high - self.low) / self.bins
        )
        return float((taken * middles).sum() / wanted)


@dataclass(frozen=True, slots=True)
class Moments:
    """Fading count, sum and sum of squares of what was seen in the *previous* optimizer steps.

    Args:
        of: A word before its entries in the state, where there are others.
        decay: Per optimizer step.
    """

    of: str = ""
    decay: float = DECAY

    def init(self) -> State:
        return {f"{self.of}{name}": torch.zeros(3, dtype=torch.float64, device="cpu") for name in ("pending", "sums")}

    def observe(self, values: Tensor, state: State) -> State:
        values = finest(values)
        new = torch.stack([torch.ones_like(values).sum(), values.sum(), values.square().sum()])
        return state | {f"{self.of}pending": state[f"{self.of}pending"].to(new) + new}

    def settle(self, state: State) -> State:
        new = ranks.add(state[f"{self.of}pending"])
        sums = state[f"{self.of}sums"] * self.decay + new.cpu()
        return state | {f"{self.of}pending": torch.zeros_like(new), f"{self.of}sums": sums}

    def mean(self, state: State) -> float:
        """NaN while nothing was seen."""
        count, total, _ = state[f"{self.of}sums"].tolist()
        return total / count if count else math.nan
