"""Time, memory and exactness of one step of head and loss, beside everyone else's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from .entries import ENTRIES
from .measure import YARDSTICKS, Progress, measure
from .memory import peak_bytes
from .problem import Size
from .report import require_matplotlib, save, table
from .result import Result, Row, Settings

__all__ = ["ENTRIES", "Result", "Row", "Settings", "Size", "peak_bytes", "run", "save", "table"]


def run(
    sizes: Iterable[tuple[int, int, int]] = ((2048, 512, 32000),),
    fraction: float = 0.1,
    repeat: int = 5,
    threads: int = 1,
    only: Iterable[str] | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
    *,
    memory: bool = True,
    seed: int = 0,
) -> Result:
    """Measure forward and backward of head and loss, interleaved, for every entry that can run.

    Args:
        sizes: Tokens, hidden size and vocabulary of each problem.
        fraction: Share of the tokens that the truncating methods drop.
        repeat: Rounds. In each, everyone takes one step, in an order of chance.
        threads: For torch. With 1, CPU time is measured; with more, wall time.
        only: Names from `ENTRIES`; all by default. The yardsticks, plain and floor, always take part.
        output: Folder for `bench.json` and `bench.png`; None: write nothing.
        progress: Called with a line about what is going on.
        memory: Also measure peak memory, which takes a process per entry.
        seed: Of the problem.
    """
    if output is not None:
        require_matplotlib()  # before, not after, the minutes of measuring
    chosen = [*ENTRIES] if only is None else [*YARDSTICKS, *only]
    if unknown := [name for name in chosen if name not in ENTRIES]:
        raise ValueError(f"unknown entry {', '.join(unknown)}; there are {', '.join(ENTRIES)}")
    if repeat < 1:
        raise ValueError(f"repeat={repeat} measures nothing: give 1 or more")
    if threads < 1:
        raise ValueError(f"threads={threads} cannot compute: give 1 or more")
    if not 0 < fraction < 1:
        raise ValueError(f"fraction={fraction} is a share to drop: give a number between 0 and 1")
    shapes = [Size(*size) for size in sizes]
    if wrong := [size for size in shapes if min(size) < 1]:
        raise ValueError(f"{tuple(wrong[0])} is not a size: give tokens, hidden size and vocabulary, each 1 or more")
    names = [name for name in ENTRIES if name in chosen]
    result = measure(shapes, fraction, repeat, threads, names, memory, seed, progress or _silent)
    if output is not None:
        save(result, output)
    return result


def _silent(line: str) -> None:
    pass
