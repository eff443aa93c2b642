"""No line is lost: what goes in is used or quarantined, and the counts say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .files import written
from .lines import Problem
from .records import Record
from .values import as_line


@dataclass(slots=True)
class Quarantine:
    """Lines that could not be used, and how many could."""

    path: Path
    used: int = 0
    problems: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.used + self.problems

    def filter(self, items: Iterable[Record | Problem]) -> Iterator[Record]:
        """The records; the problems go to the file, which is there only if there were any."""
        with written(self.path) as file:
            for item in items:
                if isinstance(item, Record):
                    self.used += 1
                    yield item
                    continue
                self.problems += 1
                self.reasons[item.reason.partition(" (")[0]] += 1
                row = {"where": str(item.where), "reason": item.reason, "text": item.raw.decode("utf-8", "replace")}
                file.write(as_line(row))
        if not self.problems:
            self.path.unlink()
