"""The element-wise stage of a kernel: some rows of logits, folded to partials and turned into a gradient.

Shapes: R rows, V vocabulary entries of this slice.

Both steps work in place on one buffer. After `fold_` it holds exp(z - peak), and next to nothing at the target;
the target is a sparse term that the caller adds. Likelihood's gradient is a multiple of that buffer, so the
multiple goes into an R x D factor of the product and no further pass over the logits is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..partials import Partial, Slope

BLOCK = 2**19  # elements of one element-wise step: they stay in the cache
PIECE = 64  # elements that are added up in float32
BITS = math.log2(math.e)  # of a nat
FLOOR = -40.0  # exp(-40) changes no sum, and neither it nor its square is a denormal number (slow on CPU)


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows of logits after `fold_`; what `z` holds is the stage's own business."""

    z: Tensor  # [R, V]
    column: Tensor  # [R] where the target stands in this slice
    here: Tensor  # [R] whether it does
    partial: Partial
    softcap: float | None = None
    bend: Tensor | None = None  # [R, V] derivative of the soft-cap

    def pack_(self, used: Tensor) -> tuple[Folded, Tensor]:
        """Move the used rows to the front, moving as few as possible; say which rows are there now."""
        count = int(used.sum())
        holes = (~used[:count]).nonzero().squeeze(1)
        movers = used[count:].nonzero().squeeze(1) + count
        order = torch.arange(count, device=used.device)
        order[holes] = movers
        size = max(1, BLOCK // max(1, self.z.shape[1]))
        for i in range(0, len(holes), size):
            for big in (self.z, self.bend):
                if big is not None:
                    big.index_copy_(0, holes[i : i + size], big[movers[i : i + size]])
        bend = None if self.bend is None else self.bend[:count]
        packed = Folded(
            self.z[:count], self.column[order], self.here[order], self.partial.take(order), self.softcap, bend
        )
        return packed, order

    def join(self, other: Folded, z: Tensor) -> Folded:
        """These rows and others, which lie side by side in `z`."""
        assert self.bend is None
        column, here = torch.cat([self.column, other.column]), torch.cat([self.here, other.here])
        return Folded(z, column, here, self.partial.join(other.partial), self.softcap)


class Stage(Protocol):
    """How a kernel does the element-wise work: torch operations here, Triton programs on a GPU."""

    block: int  # elements of given logits that are worth handing over at a time
    buffer: int  # elements of the one buffer of logits, where a head computes them
    max_rows: int  # of that buffer
    unit: float  # what it wants the logits to be multiplied by

    def fold_(
        self, z: Tensor, targets: Tensor, needs: frozenset[str], start: int = 0, softcap: float | None = None
    ) -> Folded:
        """Fold logits whose first column is vocabulary entry `start`; uses up `z`."""

    def grad_(self, folded: Folded, to_p: Tensor, slope: Slope, vocab: int) -> tuple[Tensor, Tensor]:
        """Overwrite `folded.z`; dz is then `factor * z` plus `target` at the target. Returns factor and target [R]."""


def locate(targets: Tensor, start: int, width: int) -> tuple[Tensor, Tensor]:
    """The column of each target in this slice (any column if it is not there), and whether it is there."""
    column = targets - start
    here = (column >= 0) & (column < width)
    return torch.where(here, column, 0), here


def _long_sum(e: Tensor) -> Tensor:
    """Row sums. Beside a 1, a long tail of tiny terms loses digits in float32; short pieces of it do not."""
    whole = e.shape[1] // PIECE * PIECE
    pieces: Tensor = e[:, :whole].unflatten(1, (-1, PIECE)).sum(2)
    total = pieces.sum(1, dtype=torch.float64) + e[:, whole:].sum(1, dtype=torch.float64)
    return total.to(e.dtype)


class TorchRows:
    """Plain torch operations, a cache-sized block of rows at a time.

    Args:
        unit: What the logits come multiplied by: 1, or `BITS` where a product makes them, which may as well make that
            (on a CPU `exp2` takes a third of the time of `exp`).
    """

    block = 2**20
    buffer = 2**23  # 32 MB
    max_rows = 512

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit

    def fold_(
        self, z: Tensor, targets: Tensor, needs: frozenset[str], start: int = 0, softcap: float | None = None
    ) -> Folded:
        column, here = locate(targets, start, z.shape[1])
        bend = None if softcap is None else torch.empty_like(z)
        partial = Partial(*(z.new_zeros(len(z)) for _ in range(6)), unit=self.unit)
        size = max(1, BLOCK // max(1, z.shape[1]))
        scratch = torch.empty_like(z[:size])
        for i in range(0, len(z), size):
            rows = slice(i, i + size)
            e, spare = z[rows], scratch[: len(z[rows])]
            if softcap is not None and bend is not None:
                e.div_(softcap * self.unit).tanh_()
                torch.square(e, out=bend[rows]).neg_().add_(1)
                e.mul_(softcap * self.unit)
            at = column[rows].unsqueeze(1)
            found = e.gather(1, at).squeeze(1)
            partial.target[rows] = torch.where(here[rows], found, 0.0)
            if "mean_logit" in needs:
                partial.total[rows] = e.sum(1)
            e.scatter_(1, at, torch.where(here[rows], -torch.inf, found).unsqueeze(1))
            peak = e.amax(1).clamp_min_(torch.finfo(e.dtype).min)
            partial.peak[rows] = peak
            e.sub_(peak.unsqueeze(1)).clamp_min_(FLOOR * self.unit)
            if "entropy" in needs:
                spare.copy_(e)
            partial.mass[rows] = _long_sum(e.exp_() if self.unit == 1 else e.exp2_())
            if "entropy" in needs:
                partial.dot[rows] = spare.mul_(e).sum(1)
            if "off_target" in needs:
                partial.square[rows] = torch.mul(e, e, out=spare).sum(1)
        return Folded(z, column, here, partial, softcap, bend)

    def grad_(self, folded: Folded, to_p: Tensor, slope: Slope, vocab: int) -> tuple[Tensor, Tensor]:
        z, bend = folded.z, folded.bend
        # Where even the whole rest is beyond reach the row would be denormal.
        to_p = to_p.masked_fill(to_p < math.exp(FLOOR), 0.0)
        target = torch.where(folded.here, slope.target, 0.0)
        bare = slope.is_flat
        if bare and bend is None and not slope.mean.any():
            factor = slope.flat * to_p
            return factor.masked_fill(factor.abs() < torch.finfo(z.dtype).tiny / math.exp(FLOOR), 0.0), target
        size = max(1, BLOCK // max(1, z.shape[1]))
        for i in range(0, len(z), size):
            flat, square, log, _, mean = (c[i : i + size].unsqueeze(1) for c in slope)
            p = z[i : i + size].mul_(to_p[i : i + size].unsqueeze(1))
            if bare:
                p.mul_(flat)
            else:
                log_p = p.clamp_min(torch.finfo(p.dtype).tiny).log_()
                p.mul_(log_p.mul_(log).addcmul_(square, p).add_(flat))
            p.add_(mean / vocab)
            if bend is not None:
                p.mul_(bend[i : i + size])
        if bend is not None:
            target = target * bend.gather(1, folded.column.unsqueeze(1)).squeeze(1)
        return torch.ones_like(to_p), target
