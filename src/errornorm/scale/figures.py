"""The figures of docs/scale.md: SVG that does not change from run to run, and that follows a dark page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..evaluation.picture import BASELINES, COLOURS, FAINT, GREY, INK, STYLE, titled
from .fit import fit
from .projection import Run
from .rows import AXES, ENTRIES, FILES, VERBS, Files, Row, curve, rows_of, size
from .traffic import SCOPES, Sends

SVG = {**STYLE, "svg.hashsalt": "errornorm", "svg.fonttype": "path"}
LOOKS = dict(zip(ENTRIES, (BASELINES[0], *COLOURS), strict=False))
DARK = {"#ffffff": "#15181c", INK: "#e8eaed", FAINT: "#a3a9b0", GREY: "#3d434a", BASELINES[0]: "#b9bfc6"}
MILLI, MEGA = 1e-3, 1e6
FROM, TO = 2, 4096  # ranks
CROWD = 6  # ticks that have room
DOTS = (4.5, 7, 5, 3)  # where curves meet, all are to be seen
NUDGED = {'scope="global"': 5, 'scope="running"': -4, "loss_truncation": -4}  # points, up: labels of lines that meet


def draw(files: Files, folder: Path) -> list[Path]:
    """Write what there are rows for."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install errornorm[plot]") from error
    with matplotlib.rc_context(SVG):
        figures = {"traffic.svg": _traffic()}
        if all(rows_of(files, axis) for axis in FILES):
            figures["head.svg"] = _head(files)
        if rows_of(files, "corpus"):
            figures["corpus.svg"] = _corpus(rows_of(files, "corpus"))
        return [_saved(figure, folder / name) for name, figure in figures.items()]


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _saved(figure: Any, path: Path) -> Path:
    """With a second set of colours for those who read on a dark page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    rules = "".join(
        f'[style*="{use}: {light.lower()}"]{{{use}:{dark}!important}}'
        for light, dark in DARK.items()
        for use in ("fill", "stroke")
    )
    text = path.read_text(encoding="utf-8")
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n <defs>"
    path.write_text(text.replace("<defs>", style, 1), encoding="utf-8")
    return path


def _head(files: Files) -> Any:
    figure, grid = _figure(2, len(FILES), 11, 6.4)
    for place, (axis, column) in enumerate(FILES.items()):
        rows = rows_of(files, axis)
        for axes, y, unit, name in (
            (grid[0][place], "best", MILLI, "time of a step, ms"),
            (grid[1][place], "peak_bytes", MEGA, "peak memory, MB"),
        ):
            by_entry = {entry: [row for row in rows if row["entry"] == entry] for entry in ENTRIES}
            _curves(axes, by_entry, column, y, unit)
            fixed = ", ".join(f"{word} {rows[0][other]:,}" for other, word in AXES.items() if other != column)
            titled(axes, name, f"by {AXES[column]}; {fixed}")
    return figure


def _corpus(rows: Sequence[Row]) -> Any:
    figure, ((left, right),) = _figure(1, 2, 9, 3.6)
    by_verb = {verb: [row for row in rows if row["verb"] == verb] for verb in VERBS}
    _curves(left, by_verb, "texts", "seconds", 1.0)
    titled(left, "processor time, s", "by texts; one thread")
    _curves(right, by_verb, "texts", "peak_bytes", MEGA)
    titled(right, "peak memory, MB", "by texts; beyond what the process had before")
    return figure


def _curves(axes: Any, groups: Mapping[str, Sequence[Row]], x: str, y: str, unit: float) -> None:
    """Points, the line fitted through their logarithms, and its slope."""
    colours, dots = (LOOKS, DOTS) if "plain" in groups else (dict(zip(groups, COLOURS, strict=False)), DOTS[:1] * 4)
    for dot, (name, rows) in zip(dots, groups.items(), strict=True):
        xs, ys = curve(rows, x, y)
        ys = [value / unit for value in ys]
        found = fit(xs, ys)
        axes.plot(xs, [found(a) for a in xs], color=colours[name], linewidth=1, alpha=0.6)
        axes.plot(xs, ys, "o", color=colours[name], markersize=dot, label=f"{name}: slope {found}")
    _logarithmic(axes, xs if len(xs) <= CROWD else xs[::2])
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.3)  # room for the legend
    axes.legend(loc="upper left", frameon=False, fontsize=8, handletextpad=0.1, borderaxespad=0.2)


def _logarithmic(axes: Any, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.set_xticks(ticks, [_short(tick) for tick in ticks])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=GREY, alpha=0.5, linewidth=0.6)


def _short(value: float) -> str:
    """As people write it: 256, 4k, 64k."""
    unit = 1024 if math.log2(value).is_integer() else 1000
    return f"{value / unit:g}k" if value >= unit else f"{value:g}"


def _traffic() -> Any:
    """Bytes over a rank's link, by the formulas."""
    from matplotlib.ticker import FuncFormatter

    figure, ((axes,),) = _figure(1, 1, 8, 4.4)
    run = Run()
    ranks = [2**power for power in range(FROM.bit_length() - 1, TO.bit_length())]
    shown = {
        "gradients of the model": (BASELINES[0], run.gradients),
        "a gather of all scores, for comparison": (BASELINES[1], Sends(0, run.gathered() // run.ranks)),
    }
    for name, colour in zip(("running", "global", "loss_truncation", "ent_auto"), COLOURS, strict=False):
        shown[SCOPES[name].about.replace("`", "")] = colour, SCOPES[name].formula(run.load)
    for label, (colour, sends) in shown.items():
        line = (0, (4, 2)) if colour in BASELINES else "-"
        ys = [sends.over_the_link(n) for n in ranks]
        axes.plot(ranks, ys, color=colour, linewidth=1.6, linestyle=line)
        end, up = (ranks[-1], ys[-1]), NUDGED.get(label, 0)
        axes.annotate(label, end, (6, up), textcoords="offset points", color=INK, va="center", fontsize=8)
    _logarithmic(axes, ranks[::2])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: size(value)))
    axes.set_xlim(FROM / 1.2, TO * 40)
    axes.set_xlabel("ranks")
    titled(axes, "bytes over the link of each rank, in a step", f"in a ring; {run.sequence:,} tokens on each rank")
    return figure
