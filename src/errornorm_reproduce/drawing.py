"""The figures, by matplotlib, in SVG that does not change from run to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from errornorm.openings import EVEN
from errornorm.stats import ERROR_NORM_MAX

STYLE: Any = {
    "svg.hashsalt": "errornorm",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def _figure(columns: int, rows: int = 1) -> tuple[Any, Any]:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install errornorm[plot]") from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * columns, 2.8 * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None}, dpi=200)


def lines(series: Lines, path: Path, x: str, y: str, marks: Sequence[float] = ()) -> None:
    """One line for each name, of different strokes, so that equal ones show; a broken one upright at each mark."""
    figure, ((axes,),) = _figure(1)
    for (name, (xs, ys)), stroke in zip(series.items(), cycle(("-", "--", ":", "-.")), strict=False):
        axes.plot(xs, ys, stroke, marker="o", markersize=3, linewidth=1.4, label=name)
    for mark in marks:
        axes.axvline(mark, color="#c0392b", linestyle="--", linewidth=0.8)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    figure.set_figwidth(5.6)
    figure.legend(frameon=False, fontsize=7, loc="outside right upper")
    _save(figure, path)


def bars(distributions: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Predictions side by side."""
    figure, (row,) = _figure(len(distributions))
    for axes, part in zip(row, distributions, strict=True):
        colours = ["#c0392b"] + ["#7f8c8d"] * (len(part["words"]) - 1)
        axes.bar(part["words"], part["probabilities"], color=colours)
        axes.tick_params(axis="x", rotation=60)
        axes.set_ylim(0, 1)
        axes.set_title(f"{part['name']}\nloss {part['nll']:.2f}, error norm {part['error_norm']:.2f}", fontsize=9)
    _save(figure, path)


def histograms(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Clean and noisy units by loss and by error norm, one row for each noise."""
    figure, rows = _figure(2, len(found))
    for row, (name, scores) in zip(rows, found.items(), strict=True):
        for axes, (score, part) in zip(row, scores.items(), strict=True):
            for side, colour in (("clean", "#2980b9"), ("noisy", "#c0392b")):
                total = max(1, sum(part[side]))
                heights = [count / total for count in part[side]]
                axes.stairs(heights, part["bounds"], fill=True, alpha=0.5, color=colour, label=side)
            axes.set_title(f"{name}: {score.replace('nll', 'loss').replace('_', ' ')}", fontsize=9)
    rows[0][0].legend(frameon=False, fontsize=7)
    _save(figure, path)


def openings(found: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """Texts by what follows their first token, and by its error norm; what is above the line is suspicious."""
    figure, rows = _figure(3, -(-len(found) // 3))
    for axes, (name, texts) in zip(rows.flat, found.items(), strict=False):
        for side, label, colour in ((0, "clean", "#2980b9"), (1, "noisy", "#c0392b")):
            mine = [(hard, norm) for norm, hard, noisy in texts if noisy == side]
            if mine:
                points = zip(*mine, strict=True)
                axes.scatter(*points, s=3, alpha=0.5, linewidths=0, color=colour, label=label, rasterized=True)
        axes.plot([0, 1], [EVEN, EVEN + 0.5], color="black", linewidth=0.8)
        axes.set_title(name, fontsize=9)
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, ERROR_NORM_MAX)
    for axes in rows[-1]:
        axes.set_xlabel("loss of the rest, of an average token")
    for row in rows:
        row[0].set_ylabel("error norm of the first token")
    rows[0][0].legend(frameon=False, fontsize=7, markerscale=3)
    _save(figure, path)
