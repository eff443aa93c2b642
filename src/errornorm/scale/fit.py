"""How fast something grows: a straight line through the logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Fit(NamedTuple):
    """y = scale * x ** slope."""

    slope: float
    error: float  # standard error of the slope; NaN with two points, which any line meets
    scale: float

    def __call__(self, x: float) -> float:
        return float(self.scale * x**self.slope)

    def __str__(self) -> str:
        return f"{self.slope:.2f}" if math.isnan(self.error) else f"{self.slope:.2f} ± {self.error:.2f}"


def fit(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """Least squares of log y on log x.

    Example:
        >>> print(fit([1, 10, 100], [3, 300, 30000]))
        2.00 ± 0.00
    """
    if len(xs) != len(ys) or len(set(xs)) < 2 or min(*xs, *ys) <= 0:
        raise ValueError(f"{len(xs)} and {len(ys)} numbers are no curve: give two points or more, all above 0")
    rate, at = line([math.log(x) for x in xs], [math.log(y) for y in ys])
    return Fit(rate.slope, rate.error, math.exp(at))


class Rate(NamedTuple):
    """How much more for one more."""

    slope: float
    error: float  # standard error; NaN with two points

    @property
    def seen(self) -> bool:
        """Whether it is more than chance would make it."""
        return self.slope > 2 * self.error


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[Rate, float]:
    """Least squares of y on x: the slope, and the value at 0."""
    mean_x, mean_y = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    at = mean_y - slope * mean_x
    left = math.fsum((y - at - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return Rate(slope, math.sqrt(left / (len(xs) - 2) / spread) if len(xs) > 2 else math.nan), at
