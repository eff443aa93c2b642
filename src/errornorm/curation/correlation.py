"""Rank correlation of a score with a share, and of resamples of it."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]


def ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of their ranks.

    >>> ranks(numpy.array([0.3, 0.1, 0.3])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, places, sizes = numpy.unique(values, return_inverse=True, return_counts=True)
    last = numpy.cumsum(sizes)
    return numpy.asarray((last - (sizes - 1) / 2)[places])


def correlation(values: Floats, shares: Floats, times: NDArray[numpy.uint16]) -> tuple[float, Floats]:
    """Spearman's, and how far that of resamples is from it.

    A resample keeps the ranks that its texts have among all, so that it is a few sums.

    Args:
        times: How often each resample has each unit (resamples, units).
    """
    x, y = (side - side.mean() for side in (ranks(values), ranks(shares)))
    columns = numpy.stack([numpy.ones(len(x)), x, y, x * x, y * y, x * y], 1)

    def of(sums: Floats) -> Floats:
        num, a, b, aa, bb, ab = numpy.moveaxis(sums, -1, 0)
        with numpy.errstate(invalid="ignore", divide="ignore"):
            spread = numpy.sqrt((aa - a * a / num) * (bb - b * b / num))
            return numpy.asarray(numpy.where(spread > 0, (ab - a * b / num) / spread, numpy.nan))

    whole = float(of(columns.sum(0)))
    drawn = numpy.stack([row.astype(numpy.float64) @ columns for row in times]) if len(times) else columns[:0]
    return whole, of(drawn) - whole
