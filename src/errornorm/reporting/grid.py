"""Thresholds that the page can choose, and exact counts of what is above each of them."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

Counts = NDArray[numpy.int64]
NORM = numpy.arange(284) / 200  # 0, 0.005, ... 1.415: the largest error norm is √2
LOSS = numpy.arange(401) / 20  # 0, 0.05, ... 20
# The page holds whole numbers: fifty of them are a step between thresholds.
NORM_UNIT, LOSS_UNIT = 10_000, 1_000
YELLOW, RED = 1.0, 1.3  # the colours of the paper's examples
UNDEFINED = -1


def places(values: NDArray[Any], edges: NDArray[numpy.float64]) -> Counts:
    """How many thresholds each value is above. A value that is no number is above none.

    >>> places(numpy.array([0.0, 0.005, 0.0051, 1.4142, float("nan")]), NORM).tolist()
    [0, 1, 2, 283, 0]
    """
    found = numpy.searchsorted(edges, values.astype(numpy.float64), side="left")
    return numpy.where(numpy.isnan(values), 0, found).astype(numpy.int64)


def known(values: NDArray[Any]) -> NDArray[numpy.float64]:
    """With 0 in place of what is no number, so that it takes no part in a sum.

    >>> known(numpy.array([1.5, float("nan"), float("-inf")])).tolist()
    [1.5, 0.0, 0.0]
    """
    return numpy.nan_to_num(values.astype(numpy.float64), posinf=0.0, neginf=0.0)


def count(found: Counts, edges: NDArray[numpy.float64]) -> Counts:
    """How many values are above exactly 0, 1, 2, ... thresholds."""
    return numpy.bincount(found, minlength=len(edges) + 1).astype(numpy.int64)


def above(counts: Counts) -> Counts:
    """How many values are above each threshold.

    >>> above(numpy.array([5, 2, 1])).tolist()
    [3, 1]
    """
    return numpy.asarray(counts.sum() - numpy.cumsum(counts)[:-1], numpy.int64)


def whole(values: NDArray[Any], unit: int) -> list[int]:
    """As whole numbers of 1 / unit, rounded up: so they are above the same thresholds as before.

    >>> whole(numpy.array([1.0, 1.00001, float("nan")]), NORM_UNIT)
    [10000, 10001, -1]
    """
    scaled = numpy.ceil(numpy.minimum(values.astype(numpy.float64), 1e6) * unit)
    return [int(number) for number in numpy.where(numpy.isfinite(scaled), scaled, UNDEFINED)]
