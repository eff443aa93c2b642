"""A picture of methods side by side: curves over the steps, and a bar for each."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.files import real, written_bytes

# Okabe and Ito's colours, which all eyes can tell apart, but for yellow, which is too light for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BASELINES = ("#4A4F55", "#9299A1")
GREY, INK, FAINT = "#C9CDD2", "#22262B", "#6B7178"
STYLE: dict[Any, Any] = {
    "font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "text.color": INK,
    "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT, "axes.titlepad": 10,
}  # fmt: skip
WIDEST = 40  # characters of a label's line
STEEP = 0.2  # share of the steps at the beginning that may leave the frame


@dataclass(frozen=True, slots=True)
class Series:
    """A method: a curve for each seed, and the numbers of its bar."""

    label: str
    curves: Sequence[Mapping[int, float]]
    mean: float
    sd: float | None
    text: str
    baseline: bool = False

    def band(self) -> list[tuple[int, float, float, float]]:
        """Step, lowest, mean and highest value, at the steps that all seeds have."""
        steps = sorted(set.intersection(*(set(curve) for curve in self.curves))) if self.curves else []
        rows = [(step, [curve[step] for curve in self.curves]) for step in steps]
        return [(step, min(values), sum(values) / len(values), max(values)) for step, values in rows]


def draw(series: Sequence[Series], path: Path, curves: str, bars: str) -> None:
    """Write a PNG. Without curves, there are only bars.

    Args:
        series: From top to bottom.
        path: The file; it is there completely, or not at all.
        curves: What the curves show.
        bars: What the bars show.
    """
    bands = [one.band() for one in series]
    count = 2 if any(bands) else 1
    with panels(count, 5.6 * count + 0.6, max(3.4, 0.52 * len(series) + 1.2)) as (figure, axes):
        _draw_bars(axes[-1], series, bars)
        if count == 2:
            _draw_curves(axes[0], series, bands, curves)
        save(figure, path)


@contextmanager
def panels(count: int, width: float, height: float) -> Iterator[tuple[Any, list[Any]]]:
    """A figure in this style, and so many panels side by side in it."""
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("the picture needs matplotlib: pip install errornorm[plot]") from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(1, count, squeeze=False)[0])


def _styles(series: Sequence[Series]) -> list[tuple[str, Any, str]]:
    """A colour, a kind of line and a hatch for each; a baseline is grey and dashed."""
    counts = {True: 0, False: 0}
    styles: list[tuple[str, Any, str]] = []
    for one in series:
        colours = BASELINES if one.baseline else COLOURS
        again, place = divmod(counts[one.baseline], len(colours))
        line = (0, (4, 2)) if one.baseline else ":" if again else "-"
        styles.append((colours[place], line, "//" if again else ""))
        counts[one.baseline] += 1
    return styles


def _draw_curves(axes: Any, series: Sequence[Series], bands: Sequence[Any], title: str) -> None:
    for (colour, line, _), band in zip(_styles(series), bands, strict=True):
        if not band:
            continue
        steps, low, mean, high = zip(*band, strict=True)
        if low != high:
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(steps, mean, color=colour, linestyle=line, linewidth=1.6, marker="." if len(steps) < 30 else "")
    last = max(band[-1][0] for band in bands if band)
    seen = [row for band in bands for row in band if row[0] > STEEP * last]
    values = [value for row in seen for value in row[1:] if math.isfinite(value)]
    if values and max(values) > min(values):
        room = 0.06 * (max(values) - min(values))
        axes.set_ylim(min(values) - room, max(values) + room)
    axes.set_xlim(0, last)
    axes.set_xlabel("step")
    several = any(len(one.curves) > 1 for one in series)
    titled(axes, title, "mean over seeds; band from lowest to highest" if several else "one seed")
    axes.grid(axis="y", color=GREY, alpha=0.5, linewidth=0.6)


def _draw_bars(axes: Any, series: Sequence[Series], title: str) -> None:
    lengths = [one.mean if math.isfinite(one.mean) else 0.0 for one in series]
    errors = [one.sd if one.sd is not None and math.isfinite(one.sd) else 0.0 for one in series]
    colours, _, hatches = zip(*_styles(series), strict=True)
    axes.barh(range(len(series)), lengths, color=colours, hatch=hatches, edgecolor="white", linewidth=0, height=0.62)
    for place, (one, length, error) in enumerate(zip(series, lengths, errors, strict=True)):
        if error:
            axes.errorbar(length, place, xerr=error, color=INK, linewidth=1.2, capsize=3)
        axes.annotate(one.text, (length + error, place), (5, 0), textcoords="offset points", va="center")
    labels = ["\n".join(textwrap.wrap(one.label, WIDEST)) for one in series]
    axes.set_yticks(range(len(series)), labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(len(series) - 0.4, -0.6)
    axes.set_xlim(0, 1.4 * max(length + error for length, error in zip(lengths, errors, strict=True)) or 1)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    several = any(len(one.curves) > 1 for one in series)
    titled(axes, title, "mean ± standard deviation over seeds" if several else "one seed")


def titled(axes: Any, text: str, below: str) -> None:
    axes.set_title(f"{text}\n", loc="left", weight="bold", fontsize=10.5)
    axes.annotate(
        below, (0, 1), xycoords="axes fraction", xytext=(0, 10), textcoords="offset points", color=FAINT, va="bottom"
    )


def save(figure: Any, path: Path, dpi: int = 110) -> None:
    """As PNG, completely or not at all."""
    with written_bytes(real(path)) as file:
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
