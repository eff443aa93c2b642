"""Sums over the texts of each group, and means with intervals from them: one pass, whatever the size.

Texts are the independent units. A mean over texts has a t interval; a share of tokens is a ratio of two sums over
texts, and its interval comes from the spread of the texts about that ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
Estimate = tuple[float, float, float]  # a value, and its 95 % interval
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # 97.5th percentiles, 1 to 10 degrees
Z = 1.959964


class Sums:
    """Columns of sums, a row for each group; groups appear as they come.

    Args:
        columns: Names of what is summed. `a*b` is the sum of products, and is made from `a` and `b`.
    """

    def __init__(self, columns: Iterable[str]) -> None:
        self.columns = list(columns)
        self.groups: dict[str, int] = {}
        self._rows = numpy.zeros((16, len(self.columns)))

    def add(self, keys: Sequence[str], values: Mapping[str, Floats]) -> None:
        """A number of each text for each name; NaN adds nothing."""
        numbers = numpy.asarray([self.groups.setdefault(key, len(self.groups)) for key in keys])
        while len(self._rows) < len(self.groups):
            self._rows = numpy.concatenate([self._rows, numpy.zeros_like(self._rows)])
        which, places = numpy.unique(numbers, return_inverse=True)
        for column, name in enumerate(self.columns):
            factors = [values[part] for part in name.split("*")]
            one = numpy.nan_to_num(math.prod(factors))
            self._rows[which, column] += numpy.bincount(places, one, len(which))

    def of(self, group: str | None = None) -> dict[str, float]:
        """The sums of a group, or of all."""
        row = self._rows.sum(0) if group is None else self._rows[self.groups[group]]
        return dict(zip(self.columns, row.tolist(), strict=True))


def mean(sums: Mapping[str, float], name: str, num: str) -> Estimate | None:
    """Of `name` over `num` texts; needs the sum of squares."""
    count, total = sums[num], sums[name]
    if count == 0:
        return None
    value = total / count
    if count < 2:
        return value, math.nan, math.nan
    variance = max(0.0, sums[f"{name}*{name}"] - count * value * value) / (count - 1)
    return around(value, math.sqrt(variance / count), count - 1)


def ratio(sums: Mapping[str, float], above: str, below: str, num: str) -> Estimate | None:
    """Of two sums over `num` texts; needs the sums of squares and products."""
    count, a, b = sums[num], sums[above], sums[below]
    if b == 0:
        return None
    value = a / b
    if count < 2:
        return value, math.nan, math.nan
    aa, bb, ab = sums[f"{above}*{above}"], sums[f"{below}*{below}"], sums[f"{above}*{below}"]
    spread = max(0.0, aa - 2 * value * ab + value * value * bb) * count / (count - 1)
    return around(value, math.sqrt(spread) / abs(b), count - 1)


def around(value: float, error: float, degrees: float) -> Estimate:
    return value, value - quantile(degrees) * error, value + quantile(degrees) * error


def quantile(degrees: float) -> float:
    """The 97.5th percentile of Student's t.

    >>> round(quantile(5), 3), round(quantile(30), 3), round(quantile(1e9), 2)
    (2.571, 2.042, 1.96)
    """
    if degrees <= len(T):
        return T[max(1, int(degrees)) - 1]
    # The first terms of its expansion in 1 / degrees (Fisher and Cornish).
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + first / degrees + second / degrees**2
