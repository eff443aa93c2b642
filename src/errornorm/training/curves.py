"""The curves of a run: loss, share kept, and the norms of the largest errors."""

from __future__ import annotations

from typing import Any

from ..data.files import written_bytes
from .rundir import RunDir, read_rows

START = 1.0  # the error norm of a model that knows nothing


def draw(run: RunDir, title: str) -> None:
    """From metrics.jsonl to curves.png."""
    rows = read_rows(run.metrics) if run.metrics.is_file() else []
    train = [row for row in rows if row["split"] == "train"]
    valid = [row for row in rows if row["split"] == "valid" and row.get("nll") is not None]
    if not train:
        return
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    figure.suptitle(title)
    _line(left, train, "nll", "training, plain likelihood", "C0")
    _line(left, train, "loss", "training, objective", "C1")
    _line(left, valid, "nll", "validation", "C3", marker="o", markersize=3)
    left.set(xlabel="step", title="loss per token (nats)")
    _line(middle, train, "kept", "kept", "C0")
    middle.set(xlabel="step", title="share of the tokens kept", ylim=(0, 1.02))
    _line(right, train, "error_norm_p50", "median", "C0")
    _line(right, train, "error_norm_p90", "90 %", "C2")
    _line(right, train, "error_norm_top10", "mean of the top tenth", "C3")
    _line(right, train, "cutoff", "cutoff", "black", linestyle=":")
    right.axhline(START, color="grey", linewidth=0.6)
    right.set(xlabel="step", title="error norm", ylim=(0, 1.45))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    with written_bytes(run.curves) as file:
        figure.savefig(file, dpi=110, format="png")


def _line(axes: Any, rows: list[dict[str, Any]], name: str, label: str, color: str, **style: Any) -> None:
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), color=color, label=label, linewidth=1.2, **style)
