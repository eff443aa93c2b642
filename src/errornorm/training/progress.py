"""What the user sees of a run: a live line on a terminal, plain lines elsewhere, nothing from Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..data.visible import plain

EVERY = 10.0  # seconds from plain line to plain line
WIDE = 100  # columns of a terminal where everything fits
SHOWN = {"loss": "loss {:.3f}", "nll": "nll {:.3f}", "kept": "kept {:.1%}", "tokens_per_second": "{:,.0f} tokens/s"}


class Progress:
    """Plain lines. The silent and the live one are made from it."""

    def __init__(self) -> None:
        self.title = ""
        self._row: dict[str, Any] = {}

    @contextmanager
    def over(self, title: str) -> Iterator[None]:
        """What the following lines are about."""
        self.title = title
        try:
            yield
        finally:
            self.title = ""

    def say(self, text: str) -> None:
        print(self._line(text), file=sys.stderr, flush=True)

    def _line(self, text: str) -> str:
        """A text may name files and corpora: nothing in it may steer the terminal."""
        return plain(f"{self.title}: {text}" if self.title else text)

    @contextmanager
    def doing(self, text: str) -> Iterator[Callable[[str], None]]:
        """Something that takes a while; its parts may be told."""
        self.say(text)
        yield lambda part: None

    @contextmanager
    def steps(self, total: int, done: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
        """Optimizer steps: to be told about each, with numbers when there are new ones."""
        began = last = time.monotonic()
        self._row = {}

        def tell(step: int, row: dict[str, Any]) -> None:
            nonlocal last
            self._row |= row
            now = time.monotonic()
            if row and (now - last >= EVERY or step >= total):
                last = now
                rest = (now - began) / max(1, step - done) * (total - step)
                self.say(f"step {step} of {total}, {_numbers(self._row)}, {_clock(rest)} left")

        yield tell


class Quiet(Progress):
    """Silent."""

    def say(self, text: str) -> None:
        pass


class Live(Progress):
    """For a terminal, by rich."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self.console = Console(stderr=True)

    def say(self, text: str) -> None:
        self.console.print(self._line(text), highlight=False, markup=False)

    @contextmanager
    def doing(self, text: str) -> Iterator[Callable[[str], None]]:
        from rich.text import Text

        with self.console.status(Text(plain(text))) as status:
            yield lambda part: status.update(Text(plain(part)))

    @contextmanager
    def steps(self, total: int, done: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._row = {}
        text = TextColumn("{task.fields[numbers]}")
        columns = (self.title or "training", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), text)
        with Bar(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("training", total=total, completed=done, numbers="")

            def tell(step: int, row: dict[str, Any]) -> None:
                self._row |= row
                shown = SHOWN if self.console.width >= WIDE else [name for name in SHOWN if name != "nll"]
                bar.update(task, completed=step, numbers=_numbers(self._row, shown))

            yield tell


def choose() -> Progress:
    """For the command line."""
    return Live() if sys.stderr.isatty() else Progress()


def _numbers(row: dict[str, Any], shown: Iterable[str] = SHOWN) -> str:
    return ", ".join(SHOWN[name].format(row[name]) for name in shown if row.get(name) is not None)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
