"""Whether a part of many numbers lies apart, and how large it is; or that it cannot be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy
from numpy.typing import NDArray

from .mixture import Mixture, bandwidth, binned, fit, one_and_two, valley

Floats = NDArray[numpy.float64]
FEWEST = 300  # numbers
APART = 2.6  # distance of the components; below, the share of injected noise was off by up to 16 points, above by 6
SHOULDER = 1.6  # distance from which there may be something
GAIN = 0.015  # of log-likelihood for each number, over one component
SMALLEST, LARGEST = 0.01, 0.7  # of a part
DEPTH, ANY_DEPTH, MOSTLY = 0.08, 0.03, 0.9  # of a valley; a smaller one must be there in most of the resamples
SMALLEST_PEAK, LARGEST_PEAK = 0.03, 0.5  # tails are bumpy; and of two peaks the larger one is the corpus
FEWEST_IN_PEAK = 30
RESAMPLES = 200
Side = Literal["below", "above"]


@dataclass(frozen=True, slots=True)
class Peak:
    """A part on one side of a valley: the place of the valley, its depth, and the share with its interval."""

    edge: float
    depth: float
    share: float
    low: float
    high: float


def upper_part(values: Floats) -> tuple[Mixture | None, float | None]:
    """Two normal components if the upper one lies apart; else its rough share, if one component is not enough."""
    centres, counts = binned(values)
    one, two = one_and_two(centres, counts)
    gain = two.log_likelihood - one.log_likelihood
    share, distance = float(two.upper(values).mean()), two.distance()
    worth = gain >= max(GAIN * len(values), 1.5 * math.log(len(values)))  # three more parameters (BIC)
    if not worth or not SMALLEST <= share <= LARGEST or distance < SHOULDER:
        return None, None
    return (two, None) if distance >= APART and _is_there(two, centres, counts) else (None, share)


def _is_there(mixture: Mixture, centres: Floats, counts: Floats) -> bool:
    """Whether a valley that the mixture promises can be seen; a flat distribution is no mixture of two."""
    width = bandwidth(centres, counts)
    promised, _ = valley(centres, mixture.parts(centres).sum(0), width, SMALLEST)
    return promised < DEPTH or valley(centres, counts, width, SMALLEST)[0] >= promised / 3


def interval(values: Floats, mixture: Mixture, random: numpy.random.Generator) -> tuple[float, float]:
    """Of the share of the upper component, from resamples."""
    centres, counts = binned(values)
    drawn = random.multinomial(len(values), counts / counts.sum(), RESAMPLES).astype(numpy.float64)
    shares = [fit(centres, row, mixture, 60).upper(centres) @ row / row.sum() for row in drawn]
    low, high = numpy.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def peak(values: Floats, random: numpy.random.Generator, side: Side, least: float = DEPTH) -> Peak | None:
    """The part below or above a valley; None if there is no valley at least so deep."""
    if len(values) < FEWEST:
        return None
    centres, counts = binned(values)
    width, smallest = bandwidth(centres, counts), max(SMALLEST_PEAK, FEWEST_IN_PEAK / len(values))

    def look(counts: Floats) -> tuple[float, int, float]:
        depth, place = valley(centres, counts, width, smallest)
        below = float(counts[:place].sum() / counts.sum())
        return depth, place, below if side == "below" else 1 - below

    depth, place, share = look(counts)
    if depth < least or share > LARGEST_PEAK:
        return None
    drawn = random.multinomial(len(values), counts / counts.sum(), RESAMPLES).astype(numpy.float64)
    shares = [part for deep, _, part in map(look, drawn) if deep >= ANY_DEPTH]
    if len(shares) < MOSTLY * RESAMPLES:
        return None
    low, high = numpy.quantile(shares, [0.025, 0.975])
    return Peak(float(centres[place]), depth, share, float(low), float(high))
