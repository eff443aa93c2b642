"""The measurement: everyone in turn, in an order that changes with every round, in one process."""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from .._version import __version__
from ..threads import on_threads
from .entries import ENTRIES, Choices, Entry, Step, UnavailableError
from .memory import MEGABYTE, RESET, UNKNOWN, peak_bytes
from .problem import Problem, Size, problem
from .result import Result, Row, Settings
from .truth import Errors, Truth

CHUNKS = (128, 256, 512, 1024, 2048)  # tokens at a time to try with torch's fused loss
TRIES = 2  # timings of each of them
YARDSTICKS = ("floor", "plain")
REASON = 70  # characters of a failure to show

Progress = Callable[[str], None]
Clock = Callable[[], float]


@dataclass(slots=True)
class _Seen:
    """What is known of an entry so far."""

    entry: Entry
    seconds: list[float]
    errors: Errors | None = None
    peak: int | None = None
    failure: str = ""


def measure(
    sizes: list[Size],
    fraction: float,
    repeat: int,
    threads: int,
    names: list[str],
    memory: bool,
    seed: int,
    progress: Progress,
) -> Result:
    rows: list[Row] = []
    with on_threads(threads):
        for size in sizes:
            settings = Settings(
                *size, fraction=fraction, repeat=repeat, threads=threads, seed=seed, clock=_clock(threads)[0],
                memory=_how(memory),
                torch=torch.__version__, errornorm=__version__, cpu=_cpu(),
            )  # fmt: skip
            choices, seen = _timed(problem(size, seed), settings, names, progress)
            if memory:
                for name in names:
                    progress(f"{_shown(size)}: memory of {name}")
                    _weigh(seen[name], size, choices, settings)
            rows += _rows(seen, choices, settings)
    return Result(tuple(rows))


def _timed(here: Problem, settings: Settings, names: list[str], progress: Progress) -> tuple[Choices, dict[str, _Seen]]:
    clock = _clock(settings.threads)[1]
    where = _shown(here.size)
    progress(f"{where}: float64 truth")
    truth = Truth(here)
    choices = Choices(settings.fraction, round(truth.threshold(settings.fraction), 4))
    if "torch_tuned" in names:
        progress(f"{where}: best chunk for torch's fused loss")
        choices = _tuned(here, choices, clock)
    seen = {name: _Seen(ENTRIES[name], []) for name in names}
    steps: dict[str, Step] = {}
    for name in names:
        progress(f"{where}: warm-up of {name}")
        step = _warmed(seen[name], here, choices, truth)
        if step is not None:
            steps[name] = step
    for count in range(settings.repeat):
        progress(f"{where}: round {count + 1} of {settings.repeat}")
        for name in random.Random(count).sample(list(steps), len(steps)):
            seen[name].seconds.append(_seconds(steps[name], here, clock))
    return choices, seen


def _warmed(seen: _Seen, here: Problem, choices: Choices, truth: Truth) -> Step | None:
    """The first step, whose time does not count and whose result is checked; None if it cannot be taken."""
    entry = seen.entry
    here.forget()
    try:
        step = entry.prepare(here, choices)
        loss = step()
    except UnavailableError as reason:
        seen.failure = str(reason)
        return None
    except Exception as error:
        if entry.kind != "peer":
            raise
        seen.failure = _reason(error)
        return None
    spec = entry.spec(choices)
    if spec is not None:
        assert loss is not None
        seen.errors = truth.errors(spec, loss)
    return step


def _tuned(here: Problem, choices: Choices, clock: Clock) -> Choices:
    best = float("inf")
    for chunk in (*(c for c in CHUNKS if c < here.size.tokens), here.size.tokens):
        tried = replace(choices, chunk=chunk)
        with contextlib.suppress(UnavailableError):
            step = ENTRIES["torch_tuned"].prepare(here, tried)
            took = min(_seconds(step, here, clock) for _ in range(TRIES))
            if took < best:
                best, choices = took, tried
    return choices


def _weigh(seen: _Seen, size: Size, choices: Choices, settings: Settings) -> None:
    entry = seen.entry
    if seen.failure or entry.name == "floor":  # its outputs are there before it starts
        return
    try:
        seen.peak = peak_bytes(entry.name, size, choices, settings.threads, settings.seed)
    except RuntimeError as error:
        if entry.kind != "peer":
            raise
        seen.failure = _reason(error)


def _seconds(step: Step, here: Problem, clock: Clock) -> float:
    here.forget()
    gc.collect()
    start = clock()
    step()
    return clock() - start


def _rows(seen: Mapping[str, _Seen], choices: Choices, settings: Settings) -> Iterator[Row]:
    plain, floor = seen["plain"], seen["floor"]
    for one in seen.values():
        entry, ms = one.entry, [1e3 * s for s in one.seconds]
        yield Row(
            name=entry.name,
            label=entry.label,
            kind=entry.kind,
            objective=entry.spec(choices),
            note=one.failure or entry.remark(choices),
            ran=bool(ms),
            times_ms=tuple(ms),
            best_ms=min(ms, default=None),
            median_ms=statistics.median(ms) if ms else None,
            to_plain=_ratio(one.seconds, plain.seconds),
            to_floor=_ratio(one.seconds, floor.seconds),
            peak_mb=None if one.peak is None else one.peak / MEGABYTE,
            memory_to_plain=None if one.peak is None or not plain.peak else one.peak / plain.peak,
            loss_error=one.errors.loss if one.errors else None,
            gradient_error=one.errors.gradient if one.errors else None,
            settings=settings,
        )


def _ratio(mine: list[float], yardstick: list[float]) -> float | None:
    """The median over the rounds: a machine that slows down for a round does so for both."""
    return statistics.median(a / b for a, b in zip(mine, yardstick, strict=True)) if mine else None


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"failed: {type(error).__name__}: {first}"[:REASON]


def _shown(size: Size) -> str:
    return ", ".join(map(str, size))


def _how(memory: bool) -> str:
    if not memory:
        return "peak memory was not asked for"
    return "peak of the resident set" if RESET.exists() else UNKNOWN


def _clock(threads: int) -> tuple[str, Clock]:
    """CPU time, which other programs do not disturb; over several threads it would only add up."""
    return ("cpu", time.process_time) if threads == 1 else ("wall", time.perf_counter)


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"
