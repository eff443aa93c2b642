"""Mixtures of normal distributions for many numbers, and whether a part of them lies apart.

Two normal components nearly always fit better than one, because nothing real is normal; a better fit alone says
nothing about noise. A part lies apart if the components are far from each other, or if there is a valley between two
peaks.

Numbers are in bins with `centres` and `counts`, so that a fit takes as long for a million as for a thousand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
BINS = 256
STEPS = 300
STARTS = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)  # quantiles where a new component is tried


@dataclass(frozen=True, slots=True)
class Mixture:
    """Normal components, by rising mean."""

    weights: Floats
    means: Floats
    deviations: Floats
    log_likelihood: float

    def parts(self, at: Floats) -> Floats:
        """The density of each component (components, points)."""
        scaled = (at - self.means[:, None]) / self.deviations[:, None]
        heights = self.weights / self.deviations / math.sqrt(2 * math.pi)
        return numpy.asarray(heights[:, None] * numpy.exp(-0.5 * scaled**2))

    def upper(self, at: Floats) -> Floats:
        """Of two components: the chance that a number is of the upper one; 0 below the mean of the lower one."""
        lower, upper = self.parts(at)
        # The wider of two normal distributions wins on both sides, also where it has no business.
        return numpy.where(at > self.means[0], upper / numpy.maximum(lower + upper, 1e-300), 0.0)

    def distance(self) -> float:
        """Of two components: between their means, in units of their deviation (Ashman's D)."""
        return float((self.means[1] - self.means[0]) / math.sqrt((self.deviations**2).mean()))


def binned(values: Floats) -> tuple[Floats, Floats]:
    """Centres and counts; the outermost thousandth goes into the outermost bins."""
    low, high = numpy.quantile(values, [0.001, 0.999])
    edges = numpy.linspace(low, max(high, low + 1e-9), BINS + 1)
    counts = numpy.histogram(numpy.clip(values, edges[0], edges[-1]), edges)[0]
    return (edges[1:] + edges[:-1]) / 2, counts.astype(numpy.float64)


def fit(centres: Floats, counts: Floats, start: Mixture, steps: int = STEPS) -> Mixture:
    """Expectation and maximisation, from a start."""
    total = counts.sum()
    floor = 0.02 * (centres[-1] - centres[0])  # a component must not shrink to a single value
    now, last = start, -math.inf
    for _ in range(steps):
        parts = now.parts(centres)
        density = numpy.maximum(parts.sum(0), 1e-300)
        likelihood = float(counts @ numpy.log(density))
        now = Mixture(now.weights, now.means, now.deviations, likelihood)
        if likelihood - last < 1e-7 * total:
            break
        last = likelihood
        mine = parts / density * counts
        sizes = numpy.maximum(mine.sum(1), 1e-9)
        means = mine @ centres / sizes
        spread = numpy.sqrt((mine * (centres - means[:, None]) ** 2).sum(1) / sizes)
        now = Mixture(sizes / sizes.sum(), means, numpy.maximum(spread, floor), likelihood)
    order = numpy.argsort(now.means)
    return Mixture(now.weights[order], now.means[order], now.deviations[order], now.log_likelihood)


def one_and_two(centres: Floats, counts: Floats) -> tuple[Mixture, Mixture]:
    """The best single normal distribution, and the best mixture of two."""
    total = counts.sum()
    mean = float(counts @ centres / total)
    spread = max(1e-9, math.sqrt(counts @ (centres - mean) ** 2 / total))
    one = fit(centres, counts, Mixture(numpy.ones(1), numpy.array([mean]), numpy.array([spread]), 0.0))
    places = centres[numpy.searchsorted(numpy.cumsum(counts) / total, STARTS)]
    starts = (
        Mixture(numpy.array([0.8, 0.2]), numpy.array([mean, place]), numpy.array([spread, spread / 4]), 0.0)
        for place in places.tolist()
    )
    return one, max((fit(centres, counts, start) for start in starts), key=lambda two: two.log_likelihood)


def bandwidth(centres: Floats, counts: Floats) -> float:
    """Silverman's rule."""
    shares = numpy.cumsum(counts) / counts.sum()
    lower, upper = centres[numpy.searchsorted(shares, [0.25, 0.75])]
    mean = counts @ centres / counts.sum()
    spread = math.sqrt(counts @ (centres - mean) ** 2 / counts.sum())
    scale = max(min(spread, float(upper - lower) / 1.34), float(centres[1] - centres[0]))
    return 0.9 * scale / math.pow(counts.sum(), 0.2)


def valley(centres: Floats, counts: Floats, width: float, smallest: float) -> tuple[float, int]:
    """The deepest place between two peaks of the smoothed histogram: how deep, and its bin.

    0 is no valley, 1 is down to nothing. Less than the share `smallest` on either side is no peak.
    """
    density = numpy.exp(-0.5 * ((centres[:, None] - centres) / width) ** 2) @ counts
    left, right = numpy.maximum.accumulate(density), numpy.maximum.accumulate(density[::-1])[::-1]
    shares = numpy.cumsum(counts) / counts.sum()
    inside = (shares >= smallest) & (shares <= 1 - smallest)
    depth = numpy.where(inside, 1 - density / numpy.maximum(numpy.minimum(left, right), 1e-300), 0.0)
    place = int(depth.argmax())
    return float(depth[place]), place
