"""Histograms of clean and noisy units side by side, as in the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from ..evaluation.picture import COLOURS, FAINT, GREY, panels, save, titled
from .separation import overlap

CLEAN, NOISY = COLOURS[0], COLOURS[1]
TITLES = {"nll": "Loss", "error_norm": "Error norm", "nll_mean": "Mean loss", "error_norm_mean": "Mean error norm"}


def draw_histograms(histograms: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write a PNG; the area that both have in common is shaded."""
    with panels(len(histograms), 5.2 * len(histograms) + 0.4, 3.4) as (figure, row):
        for axes, (name, found) in zip(row, histograms.items(), strict=True):
            _panel(axes, name, found)
        row[0].legend(frameon=False, loc="upper right")
        save(figure, path)


def _panel(axes: Any, name: str, found: Mapping[str, Any]) -> None:
    bounds = numpy.asarray(found["bounds"])
    widths = numpy.diff(bounds)
    clean, noisy = (numpy.asarray(found[side], numpy.float64) for side in ("clean", "noisy"))
    heights = [side / side.sum() / numpy.maximum(widths, 1e-12) for side in (clean, noisy)]
    axes.stairs(numpy.minimum(*heights), bounds, fill=True, color=GREY, alpha=0.7, label="both")
    for height, colour, label in zip(heights, (CLEAN, NOISY), ("clean", "noisy"), strict=True):
        axes.stairs(height, bounds, color=colour, linewidth=1.5, label=label)
    axes.set_xlabel(f"of a {found['level']}", color=FAINT)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    titled(axes, TITLES[name], f"overlap {float(overlap(noisy, clean)):.3f}; each curve has the area 1")
