"""The distributions as PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy

from ..evaluation.picture import GREY, panels, save, titled
from .gather import Tally
from .grid import LOSS, NORM, RED, YELLOW, above

PLAIN, YELLOW_FILL, RED_FILL = "#8A97A6", "#F2C230", "#DD5145"
STEEP = 40  # times the bar in the middle: from there on a log scale
NO_MATPLOTLIB = "figures need matplotlib: pip install errornorm[plot]"


def needs_matplotlib() -> None:
    """Say so before the work, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(NO_MATPLOTLIB) from error


def draw(tally: Tally, folder: Path) -> list[Path]:
    """error_norm.png and loss.png, each there completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    norm, loss = folder / "error_norm.png", folder / "loss.png"
    edges = numpy.digitize(NORM, [YELLOW, RED])  # the class of what is above a threshold
    by_class = numpy.stack([numpy.where(edges == k, tally.norm[1:], 0) for k in range(3)])
    by_class[0, 0] += tally.norm[0]
    _draw(norm, by_class, NORM, 4, "Error norm", _shares(tally))
    losses = tally.loss[:, 1:].copy()
    losses[:, 0] += tally.loss[:, 0]
    _draw(loss, losses, LOSS, 5, "Loss (nats)", f"mean {tally.loss_mean:.2f}; colours by error norm")
    return [norm, loss]


def _shares(tally: Tally) -> str:
    over, tokens = above(tally.norm), max(tally.tokens, 1)
    shares = ", ".join(f"{over[round(200 * level)] / tokens:.1%} above {level}" for level in (YELLOW, RED))
    return f"mean {tally.norm_mean:.2f}; {shares}"


def _draw(path: Path, counts: Any, edges: Any, merge: int, name: str, below: str) -> None:
    """Bars in three colours, one on another; `merge` bins are one bar."""
    merged = _bars(counts, merge)
    heights, ticks, labels = _heights(merged)
    width = merge * (edges[1] - edges[0])
    left = width * numpy.arange(merged.shape[1])
    with panels(1, 7.2, 3.6) as (figure, (axes,)):
        bottom = numpy.zeros(len(left))
        for part, colour in zip(heights, (PLAIN, YELLOW_FILL, RED_FILL), strict=True):
            axes.bar(left, part, width * 0.92, bottom, align="edge", color=colour, linewidth=0)
            bottom += part
        axes.set_xlim(0, left[-1] + width)
        axes.set_ylabel("tokens")
        axes.set_yticks(ticks, labels)
        axes.grid(axis="y", color=GREY, alpha=0.5, linewidth=0.6)
        axes.set_axisbelow(True)
        titled(axes, name, below)
        save(figure, path, dpi=130)


def _bars(counts: Any, merge: int) -> Any:
    last = int(numpy.flatnonzero(counts.sum(axis=0)).max(initial=0)) + 1
    bars = -(-last // merge)
    padded = numpy.zeros((3, bars * merge), numpy.int64)
    padded[:, :last] = counts[:, :last]
    return padded.reshape(3, bars, merge).sum(axis=2)


def _heights(merged: Any) -> tuple[Any, list[float], list[str]]:
    """Heights of the parts, ticks and their labels; on a log scale where one bar would hide all others.

    There a bar is divided by its share, for heights do not add up.
    """
    sums = merged.sum(axis=0)
    most = int(sums.max(initial=1))
    if most <= STEEP * numpy.median(sums[sums > 0]) if most else True:
        step = 10 ** math.floor(math.log10(max(most, 1)))
        ticks = [float(k) for k in numpy.arange(0, most + 1, step if most >= 4 * step else step / 2)]
        return merged, ticks, [f"{tick:,.10g}" for tick in ticks]
    tall = numpy.log10(sums + 1.0)
    powers = range(math.floor(math.log10(most)) + 1)
    labels = [f"{10**k:,}" for k in powers]
    return merged / numpy.maximum(sums, 1) * tall, [math.log10(10**k + 1) for k in powers], labels
