"""A result as a table and as a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from .result import Result, Row, Settings

HEAD = (
    "one step of head + loss",
    "best ms",
    "median ms",
    "time / plain",
    "time / floor",
    "peak MB",
    "MB / plain",
    "loss error",
    "gradient error",
    "note",
)
WIDEST = 1.6  # a longer bar is cut off; its number stays
OURS, PEER, YARDSTICK, INK = "#1f6f8b", "#c3c8ce", "#8b9299", "#2b2f33"


def table(result: Result) -> str:
    """Markdown that is also aligned: one table per size."""
    return "\n\n".join(f"{_title(settings)}\n\n{_table(rows)}" for settings, rows in result.by_size().items())


def save(result: Result, folder: Path) -> None:
    """Write `bench.json`, and `bench.png` drawn from it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(result.to_json())
    draw(result, folder / "bench.png")


def require_matplotlib() -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError("the bar chart needs matplotlib: pip install errornorm[plot]")


def draw(result: Result, path: Path) -> None:
    """Time and memory of whoever ran, relative to plain cross-entropy."""
    require_matplotlib()
    from matplotlib.figure import Figure

    groups = {settings: [row for row in rows if row.ran] for settings, rows in result.by_size().items()}
    lines = [len(rows) for rows in groups.values()]
    figure = Figure(figsize=(9, sum(0.27 * n + 1.1 for n in lines)), dpi=100, facecolor="white", layout="constrained")
    grid = figure.subplots(
        len(groups), 2, squeeze=False, sharey="row", gridspec_kw={"width_ratios": (3, 2), "height_ratios": lines}
    )
    for (settings, rows), (left, right) in zip(groups.items(), grid, strict=True):
        bars = [row for row in rows if row.name != "floor"]
        _bars(left, bars, [row.to_plain for row in bars])
        _bars(right, bars, [row.memory_to_plain for row in bars])
        left.set_title(f"time, plain cross-entropy = 1\n{_numbers(settings)}", loc="left", fontsize=9, color=INK)
        right.set_title("peak memory, plain = 1\n", loc="left", fontsize=9, color=INK)
        floor = next(row.to_plain for row in rows if row.name == "floor")
        left.axvline(floor, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        left.text(floor, -0.75, "three matrix products ", fontsize=7.5, color=INK, ha="right", va="center")
        left.set_ylim(len(bars) - 0.4, -1.2)
    figure.savefig(path)


def _bars(axes: Any, rows: list[Row], values: list[float | None]) -> None:
    colours = {"ours": OURS, "peer": PEER, "yardstick": YARDSTICK}
    lengths = [min(value or 0.0, WIDEST) for value in values]
    axes.barh([row.label for row in rows], lengths, color=[colours[row.kind] for row in rows], height=0.72)
    for place, (value, length) in enumerate(zip(values, lengths, strict=True)):
        text = (
            "not measured"
            if value is None
            else f"{value:.2f}"
            if value <= WIDEST
            else f"\N{RIGHTWARDS ARROW} {value:.2f}"
        )
        axes.annotate(
            text, (length, place), (3, 0), textcoords="offset points", va="center", fontsize=8, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    axes.set_xlim(0, 1.2 * max([1.0, *lengths]))
    axes.tick_params(length=0, labelsize=8.5, colors=INK)
    axes.tick_params(axis="x", labelbottom=False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color(PEER)


def _title(settings: Settings) -> str:
    clock = "CPU time" if settings.clock == "cpu" else "wall time"
    threads = "1 thread" if settings.threads == 1 else f"{settings.threads} threads"
    return (
        f"{_numbers(settings)}; {settings.repeat} rounds, {clock}, {threads} of {settings.cpu}, "
        f"torch {settings.torch}, errornorm {settings.errornorm}, seed {settings.seed}; {settings.memory}"
    )


def _numbers(settings: Settings) -> str:
    return f"{settings.tokens} tokens, hidden size {settings.hidden}, vocabulary {settings.vocab}"


def _table(rows: list[Row]) -> str:
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    words = {0, len(HEAD) - 1}

    def line(cells: tuple[str, ...]) -> str:
        padded = (c.ljust(w) if i in words else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (w + 2) if i in words else "-" * (w + 1) + ":" for i, w in enumerate(widths))
    return "\n".join([line(HEAD), f"|{rule}|", *(line(cells) for cells in lines[1:])])


def _cells(row: Row) -> tuple[str, ...]:
    columns = (
        (row.best_ms, ".1f"),
        (row.median_ms, ".1f"),
        (row.to_plain, ".3f"),
        (row.to_floor, ".3f"),
        (row.peak_mb, ".0f"),
        (row.memory_to_plain, ".3f"),
        (row.loss_error, ".0e"),
        (row.gradient_error, ".0e"),
    )
    return row.label, *("-" if value is None else f"{value:{form}}" for value, form in columns), row.note
