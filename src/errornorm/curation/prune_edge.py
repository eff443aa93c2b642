"""The edge between what stays and what goes.

Exactly so many go, the highest; of equal ones the earlier, as in training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
Mask = NDArray[numpy.bool_]
HALF = 2**16  # a float32 has two halves of 16 bits


@dataclass(slots=True)
class Edge:
    """What is above a value goes, and so many of those that equal it."""

    value: float
    ties: int = 0

    def drop(self, scores: Floats) -> Mask:
        """To be called with one piece after another. NaN stays."""
        above: Mask = scores > self.value
        if self.ties:
            tied = scores == self.value
            tied &= numpy.cumsum(tied) <= self.ties
            self.ties -= int(tied.sum())
            above |= tied
        return above


def edge_of(scores: Floats, count: int) -> Edge:
    """Where the `count` highest begin."""
    scores = scores[~numpy.isnan(scores)]
    count = min(count, len(scores))
    if not count:
        return Edge(math.inf)
    value = numpy.partition(scores, len(scores) - count)[len(scores) - count]
    return Edge(float(value), count - int((scores > value).sum()))


def edge_of_stream(read: Callable[[], Iterable[Floats]], count_of: Callable[[int], int]) -> Edge:
    """The same for any number of float32 values: it reads twice, and remembers counts only.

    Args:
        read: The values, piece by piece. NaN does not count.
        count_of: How many go, out of a total.
    """
    upper = numpy.zeros(HALF, numpy.int64)
    for keys in map(_keys, read()):
        upper += numpy.bincount(keys >> 16, minlength=HALF)
    total = int(upper.sum())
    count = min(count_of(total), total)
    if count <= 0:
        return Edge(math.inf)
    first, above = _from_above(upper, count)
    lower = numpy.zeros(HALF, numpy.int64)
    for keys in map(_keys, read()):
        lower += numpy.bincount(keys[keys >> 16 == first] & 0xFFFF, minlength=HALF)
    second, more = _from_above(lower, count - above)
    return Edge(_value(first << 16 | second), count - above - more)


def _from_above(counts: NDArray[numpy.int64], wanted: int) -> tuple[int, int]:
    """The bin in which the wanted one is, from above; and how many are above that bin."""
    sums = numpy.cumsum(counts[::-1])
    place = int(numpy.searchsorted(sums, wanted))
    found = HALF - 1 - place
    return found, int(sums[place] - counts[found])


def _keys(scores: Floats) -> NDArray[numpy.int64]:
    """Whole numbers in the order of float32 values."""
    values = scores[~numpy.isnan(scores)].astype(numpy.float32) + numpy.float32(0)  # no negative zero
    bits = values.view(numpy.uint32).astype(numpy.int64)
    return numpy.where(bits >> 31, 0xFFFFFFFF - bits, bits + 0x80000000)


def _value(key: int) -> float:
    bits = key - 0x80000000 if key >> 31 else 0xFFFFFFFF - key
    return float(numpy.array([bits], numpy.uint32).view(numpy.float32)[0])
