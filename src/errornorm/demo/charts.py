"""Small line charts: where ticks, lines and labels go. The template draws them.

Lengths across are in percent of the plot, which is as wide as there is room; those down are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HEIGHT = 220
WIDTH = 1000  # of the drawing's own units, stretched to the plot
GAP = 17  # pixels from label to label
MAX_POINTS = 240


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    style: str
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    style: str
    points: str
    end: float
    label_at: float
    last: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    across: list[Tick]
    down: list[Tick]
    lines: list[Line]

    @property
    def summary(self) -> str:
        """For those who cannot see it."""
        return f"{self.title}. At the end: " + ", ".join(f"{line.label} {line.last}" for line in self.lines) + "."


def chart(title: str, series: Sequence[Series], form: Callable[[float], str]) -> Chart:
    """Lay out a chart; series without a finite number are not in it."""
    found = [(one, points) for one in series if (points := _finite(one))]
    if not found:
        return Chart(title, [], [], [])
    last_step = max(max(step for step, _ in points) for _, points in found) or 1
    values = [value for _, points in found for _, value in points]
    low, high = min(values), max(values)
    # A loss falls fast and then differs in little.
    steep = low > 0 and 3 < high / low < 1e6
    marks, scale = (log_ticks(low, high), math.log) if steep else (ticks(low, high), float)
    bottom, top = scale(min(low, marks[0])), scale(max(high, marks[-1]))

    def y(value: float) -> float:
        return HEIGHT * (top - scale(value)) / (top - bottom)

    ends = [y(points[-1][1]) for _, points in found]
    lines = [
        Line(
            label=one.label,
            style=one.style,
            points=" ".join(f"{WIDTH * step / last_step:.1f},{y(value):.1f}" for step, value in _thin(points)),
            end=round(end, 1),
            label_at=at,
            last=form(points[-1][1]),
        )
        for (one, points), end, at in zip(found, ends, spread(ends), strict=True)
    ]
    across = [Tick(100 * at / last_step, f"{at:,.0f}") for at in ticks(0, last_step) if at <= last_step and at % 1 == 0]
    return Chart(title + ", log scale" * steep, across, [Tick(y(mark), form(mark)) for mark in marks], lines)


def _finite(series: Series) -> list[tuple[int, float]]:
    return [point for point in zip(series.steps, series.values, strict=True) if math.isfinite(point[1])]


def _thin(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    stride = -(-len(points) // MAX_POINTS)
    return [*points[:-1:stride], points[-1]]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, about five, from at or below the lowest value to at or above the highest.

    >>> ticks(0.13, 0.92)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if high - low <= 1e-6 * max(abs(high), abs(low), 1):  # flat: there is something to see below it
        low = high - max(0.1 * abs(high), 0.1) if high > 0 else low
        high = high if high > low else low + 1
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
    return [round(step * k, 10) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones, for a logarithmic scale.

    >>> log_ticks(1.4, 9.0)
    [1.5, 2.0, 3.0, 5.0, 7.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > 100
    marks = [round(m * 10.0**power, 10) for power in powers for m in ((1,) if wide else (1, 1.5, 2, 3, 5, 7))]
    return [mark for mark in marks if low <= mark <= high]


def spread(places: Sequence[float]) -> list[float]:
    """Places for labels near those of the lines' ends, none on top of another, all beside the plot.

    >>> spread([100.0, 101.0, 30.0])
    [92.0, 109.0, 30.0]
    """
    groups: list[list[int]] = []
    middles: list[float] = []
    for index in sorted(range(len(places)), key=lambda i: places[i]):
        groups.append([index])
        middles.append(places[index])
        while len(groups) > 1 and _top(middles[-1], groups[-1]) - _top(middles[-2], groups[-2]) < GAP * len(groups[-2]):
            lower = groups.pop()
            groups[-1] += lower
            middles.pop()
            middles[-1] = sum(places[i] for i in groups[-1]) / len(groups[-1])
    at = [0.0] * len(places)
    for middle, group in zip(middles, groups, strict=True):
        for k, index in enumerate(group):
            at[index] = float(math.floor(_top(middle, group)) + GAP * k)
    return at


def _top(middle: float, group: list[int]) -> float:
    """Of a group of labels around a place: the first one's, so that all stay beside the plot."""
    length = GAP * (len(group) - 1)
    return min(max(middle - length / 2, 0), HEIGHT - length)
