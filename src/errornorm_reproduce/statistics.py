"""Rows of a table from rows of results: means and standard deviations over seeds, and tests against likelihood."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from errornorm.evaluation.significance import joined, p_value, resampled, value

from .measures import restored
from .plan import BASELINE, Found, Item
from .store import Row

SAMPLES, SEED = 1000, 12345
SURE = 0.05


@dataclass(frozen=True)
class Entry:
    """A method in a column.

    Args:
        values: By seed.
        difference: To likelihood, over the seeds that both have.
        p: Of a two-sided paired bootstrap over test sentences; None if it cannot be made.
    """

    values: Mapping[int, float]
    objective: str
    difference: float | None = None
    p: float | None = None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def sd(self) -> float | None:
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None


Entries = dict[str, dict[str, Entry]]  # row -> column


class Numbers:
    """The numbers of an item by one measure."""

    def __init__(self, item: Item, found: Found, measure: str) -> None:
        self.item, self.measure = item, measure
        self._cells: dict[str, dict[str, dict[int, tuple[float, Row, str]]]] = {}
        self._scores: dict[tuple[str, str, str | None], tuple[float, Any] | None] = {}
        for cell, row in found:
            for column, number in item.values(cell, row, measure).items():
                place = self._cells.setdefault(cell.row, {}).setdefault(column, {})
                place[cell.seed] = (number, row, cell.objective)

    def entries(self) -> Entries:
        """By method and column."""
        return {name: {column: self.entry(name, column) for column in columns} for name, columns in self._cells.items()}

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self._cells.values() for column in row))

    def entry(self, name: str, column: str) -> Entry:
        seeds = self._cells[name][column]
        values = {seed: number for seed, (number, _, _) in sorted(seeds.items())}
        objective = next(iter(seeds.values()))[2]
        return Entry(values, objective, *(self.against(name, BASELINE, column) if name != BASELINE else (None, None)))

    def against(self, name: str, base: str, column: str) -> tuple[float | None, float | None]:
        """The mean difference of two methods over the seeds that both have, and its p-value."""
        a, b = (self._cells.get(one, {}).get(column, {}) for one in (name, base))
        both = [seed for seed in a if seed in b]
        if not both:
            return None, None
        difference = statistics.fmean(a[seed][0] - b[seed][0] for seed in both)
        return difference, self._p([(a[seed][1], b[seed][1]) for seed in both], column)

    def _p(self, pairs: Sequence[tuple[Row, Row]], column: str) -> float | None:
        found = [(self._resampled(a, column), self._resampled(b, column)) for a, b in pairs]
        both = [(a, b) for a, b in found if a is not None and b is not None]
        if len(both) < len(pairs):
            return None
        differences = [a[1] - b[1] for a, b in both]
        mean = statistics.fmean(a[0] - b[0] for a, b in both)
        return p_value(mean, sum(differences[1:], differences[0]) / len(both))

    def _resampled(self, row: Row, column: str) -> tuple[float, Any] | None:
        """The score of the sentences behind a number, and of resamples of them; each made once."""
        measure, part = self.item.tested(column, row, self.measure)
        key = (row["hash"], measure, part)
        if key not in self._scores:
            texts = row.get("sentences", {}).get(measure, {})
            chosen = [text for name, text in texts.items() if part in (None, name)]
            sentences = joined([restored(measure, text) for text in chosen]) if chosen else None
            self._scores[key] = None
            if sentences is not None and len(sentences.rows) > 1:
                self._scores[key] = (value(sentences), resampled(sentences, SAMPLES, SEED))
        return self._scores[key]


def entries(item: Item, found: Found, measure: str) -> Entries:
    """All numbers of a table, by method and column."""
    return Numbers(item, found, measure).entries()
