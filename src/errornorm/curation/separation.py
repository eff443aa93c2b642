"""How well a score tells noise from the rest, from counts.

Shapes: K cells of rising score (one for each value, or bins of neighbours), any number of leading dimensions; `noisy`
and `clean` hold how many units of either kind are in each cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
Ints = NDArray[numpy.int64]
RANKS = 500  # cells of about equally many units, for resamples
BARS = 50  # bins of equal width, of the histograms
TAIL = (
    0.001  # of the units at either end lies in the outermost bins: one extreme value must not make all others one bin
)


def auroc(noisy: Floats, clean: Floats) -> Floats:
    """The chance that a noisy unit has a higher score than a clean one; equal scores count one half.

    >>> float(auroc(numpy.array([0.0, 1.0, 1.0]), numpy.array([2.0, 1.0, 0.0])))
    0.9166666666666666
    """
    below = numpy.cumsum(clean, -1) - clean / 2
    with numpy.errstate(invalid="ignore", divide="ignore"):
        return numpy.asarray((noisy * below).sum(-1) / (noisy.sum(-1) * clean.sum(-1)))


def average_precision(noisy: Floats, clean: Floats) -> Floats:
    """The mean over noisy units of the share of noise among all that score at least as high."""
    found = numpy.cumsum(noisy[..., ::-1], -1)[..., ::-1]
    seen = numpy.cumsum((noisy + clean)[..., ::-1], -1)[..., ::-1]
    with numpy.errstate(invalid="ignore", divide="ignore"):
        precision = numpy.where(seen > 0, found / seen, 0)
        return numpy.asarray((noisy * precision).sum(-1) / noisy.sum(-1))


def overlap(noisy: Floats, clean: Floats) -> Floats:
    """The area that two histograms share when each has the area 1: 0 if they are apart, 1 if they are equal."""
    with numpy.errstate(invalid="ignore", divide="ignore"):
        shares = [counts / counts.sum(-1, keepdims=True) for counts in (noisy, clean)]
    return numpy.asarray(numpy.minimum(*shares).sum(-1))


@dataclass(frozen=True)
class Cells:
    """A score of many units, in cells that are fine enough to rank by and respect the bins of the histograms.

    Args:
        values: Of each unit; higher is more suspicious.
        noisy: Which of them are noise.
    """

    values: Floats
    noisy: NDArray[numpy.bool_]

    @cached_property
    def bars(self) -> Floats:
        """Bounds of the histograms' bins, of equal width."""
        low, high = numpy.quantile(self.values, [TAIL, 1 - TAIL])
        return numpy.linspace(low, high, BARS + 1)

    @cached_property
    def inner(self) -> Floats:
        """Bounds between cells. A value that equals a bound belongs to the cell on its right."""
        ranks = numpy.quantile(self.values, numpy.linspace(0, 1, RANKS + 1)[1:-1])
        return numpy.unique(numpy.concatenate([ranks, self.bars[1:-1]]))

    @cached_property
    def num(self) -> int:
        return len(self.inner) + 1

    @cached_property
    def places(self) -> Ints:
        """The cell of each unit; those of noisy units are counted on behind the others."""
        return numpy.searchsorted(self.inner, self.values, side="right") + self.num * self.noisy

    def counts(self, weights: Floats | None = None) -> tuple[Floats, Floats]:
        """Noisy and clean units in each cell."""
        both = numpy.bincount(self.places, weights, 2 * self.num).astype(numpy.float64)
        return both[self.num :], both[: self.num]

    def histograms(self, noisy: Floats, clean: Floats) -> tuple[Floats, Floats]:
        """Cells put together to bins of equal width."""
        begins = numpy.concatenate([[0], numpy.searchsorted(self.inner, self.bars[1:-1], side="left") + 1])
        # Where all values are equal there is one cell, and every bin would begin in it.
        begins = numpy.unique(numpy.minimum(begins, self.num - 1))
        return numpy.add.reduceat(noisy, begins, -1), numpy.add.reduceat(clean, begins, -1)

    def exact(self) -> dict[str, float]:
        """The measures of these units, with one cell for each value."""
        _, places = numpy.unique(self.values, return_inverse=True)
        num = int(places.max()) + 1
        both = numpy.bincount(places + num * self.noisy, minlength=2 * num).astype(numpy.float64)
        noisy, clean = both[num:], both[:num]
        bars = self.histograms(*self.counts())
        return {
            "auroc": float(auroc(noisy, clean)),
            "average_precision": float(average_precision(noisy, clean)),
            "overlap": float(overlap(*bars)),
        }

    def measures(self, noisy: Floats, clean: Floats) -> dict[str, Floats]:
        """The same from counts in cells, for many resamples at a time."""
        found = {name: measure(noisy, clean) for name, measure in MEASURES.items()}
        return {**found, "overlap": overlap(*self.histograms(noisy, clean))}

    def resampled(self, owners: Ints, times: NDArray[numpy.uint16]) -> dict[str, Floats]:
        """How far the measures of resamples are from those of all units.

        Args:
            owners: The text of each unit.
            times: How often each resample has each text (resamples, texts).
        """
        rows = [self.counts(row.astype(numpy.float64)[owners]) for row in times]
        drawn = self.measures(*(numpy.stack(side) for side in zip(*rows, strict=True)))
        whole = self.measures(*self.counts())
        return {name: values - whole[name] for name, values in drawn.items()}


MEASURES: Mapping[str, Callable[[Floats, Floats], Floats]] = {"auroc": auroc, "average_precision": average_precision}


def draw(texts: int, resamples: int, seed: int) -> NDArray[numpy.uint16]:
    """How often each resample has each text; a resample has as many texts, drawn with replacement."""
    random = numpy.random.default_rng(seed)
    out = numpy.empty((resamples, texts), numpy.uint16)
    for row in out:
        row[:] = numpy.bincount(random.integers(texts, size=texts), minlength=texts)
    return out


def interval(value: float, deviations: Floats, low: float = 0.0, high: float = 1.0) -> tuple[float, float] | None:
    """From the 2.5th to the 97.5th percentile of the resamples; None if there are too few to say."""
    known = deviations[~numpy.isnan(deviations)]
    if len(known) < 20 or numpy.isnan(value):
        return None
    bounds = numpy.quantile(known, [0.025, 0.975]) + value
    return float(max(low, bounds[0])), float(min(high, bounds[1]))
