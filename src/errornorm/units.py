"""What is kept or dropped as one piece: a token, or a whole sequence.

Shapes: N scored tokens, S sequences that have at least one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

Unit = Literal["token", "sequence"]


@dataclass(frozen=True)
class Layout:
    """Which sequence each scored token belongs to, worked out only when somebody asks."""

    row: Tensor | None  # [N] row of the batch; None: a flat batch, which does not say
    ids: Tensor | None = None  # [N] which sequence of its row, for packed batches
    num_tokens: int = 0

    @cached_property
    def _sequences(self) -> tuple[Tensor, int]:
        if self.row is None and self.ids is None:
            raise ValueError(
                "this objective works on whole sequences: give targets of shape (batch, time), or sequence_ids"
            )
        key = self.ids if self.row is None else self.row
        assert key is not None
        if self.row is not None and self.ids is not None and len(key):
            ids = torch.unique(self.ids, return_inverse=True)[1]  # they may be any numbers
            key = key * len(ids) + ids
        names, number = torch.unique(key, return_inverse=True)
        return number, len(names)

    @property
    def sequence(self) -> Tensor:
        """[N] in 0 .. S - 1."""
        return self._sequences[0]

    @property
    def num_sequences(self) -> int:
        return self._sequences[1]

    @cached_property
    def lengths(self) -> Tensor:
        """[S] scored tokens of each sequence."""
        return torch.bincount(self.sequence, minlength=self.num_sequences)

    def count(self, unit: Unit) -> int:
        return self.num_tokens if unit == "token" else self.num_sequences

    def pool(self, values: Tensor, unit: Unit) -> Tensor:
        """The mean over each unit."""
        if unit == "token":
            return values
        return values.new_zeros(self.num_sequences).index_add_(0, self.sequence, values) / self.lengths

    @cached_property
    def openings(self) -> Tensor:
        """[S] the number of the first scored token of each sequence."""
        place = torch.arange(len(self.sequence), device=self.sequence.device)
        last = place.new_full((self.num_sequences,), len(place))
        return last.scatter_reduce(0, self.sequence, place, "amin")

    def spread(self, values: Tensor, unit: Unit) -> Tensor:
        """Give each token the value of its unit."""
        return values if unit == "token" else values[self.sequence]

    def rank(self, values: Tensor) -> Tensor:
        """[N] the place of each token in its sequence by ascending value; of equal ones the earlier first."""
        order = values.argsort(stable=True)
        order = order[self.sequence[order].argsort(stable=True)]
        starts = self.lengths.cumsum(0) - self.lengths
        place = torch.arange(len(values), device=values.device) - starts[self.sequence[order]]
        return torch.empty_like(place).index_copy_(0, order, place)
