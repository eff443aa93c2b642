"""The rows of scripts/scale.py: which there are, and how fast their numbers grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .fit import Fit, Rate, fit, line

Row = Mapping[str, Any]
Files = Sequence[Mapping[str, Any]]
AXES = {"tokens": "tokens", "vocab": "vocabulary", "hidden": "width"}  # column of a row: its name on the page
FILES = {"tokens": "tokens", "vocab": "vocab", "width": "hidden"}  # file: the column that varies in it
ENTRIES = ("plain", "mle", "ent_fraction", "ent_auto")
VERBS = ("score", "prune", "detect", "report")


def rows_of(files: Files, axis: str) -> list[Row]:
    return [row for file in files if file["axis"] == axis for row in file["rows"]]


def curve(rows: Iterable[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    points = sorted((row[x], row[y]) for row in rows)
    return [a for a, _ in points], [b for _, b in points]


def growth(rows: Iterable[Row], x: str, y: str) -> Fit:
    return fit(*curve(rows, x, y))


def per_text(rows: Iterable[Row]) -> Rate:
    """Bytes of memory for one more text, by a straight line."""
    return line(*curve(rows, "texts", "peak_bytes"))[0]


def more(rate: Rate, times: float = 1.0) -> str:
    return f"{size(rate.slope * times)} ± {size(rate.error * times)}" if rate.seen else "none to be seen"


def size(number: float) -> str:
    """Bytes, for people.

    Example:
        >>> size(65536), size(0), size(3.2e10)
        ('66 kB', '0', '32 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if number < 999.5:
            digits = 0 if number >= 10 or unit == "bytes" else 1
            return "0" if number == 0 else f"{number:.{digits}f} {unit}"
        number /= 1000
    return f"{number:.0f} EB"
