"""What an objective may know besides the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from .units import Layout


@dataclass(frozen=True, slots=True)
class Context:
    """Of a whole batch, or of some of its tokens (then `rows` says which; the layout stays that of the batch)."""

    step: int  # optimizer steps taken, not forward calls
    draw: int  # training batches seen: a fresh number for whoever needs chance
    layout: Layout
    rows: Tensor  # [N] numbers of these tokens in the batch
    columns: Mapping[str, Tensor] = field(default_factory=dict)  # from outside the model, e.g. ref_nll

    def take(self, rows: Tensor) -> Context:
        return replace(self, rows=rows, columns={name: column[rows] for name, column in self.columns.items()})
