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
class Pair:
    """Two methods, over the seeds that both have.

    Args:
        ours: Mean of the first.
        theirs: Mean of the second.
        seeds: How many.
        p: Of a two-sided paired bootstrap over test sentences and seeds; None if it cannot be made.
    """

    ours: float
    theirs: float
    seeds: int
    p: float | None

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    @property
    def sure(self) -> bool:
        """More than chance."""
        return self.p is not None and self.p < SURE


@dataclass(frozen=True)
class Entry:
    """A method in a column.

    Args:
        values: By seed.
        objective: The method with its parameters.
        pair: Beside likelihood; None if there is none.
    """

    values: Mapping[int, float]
    objective: str
    pair: Pair | None = None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def sd(self) -> float | None:
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None


@dataclass(frozen=True)
class _Scores:
    """Of so many sentences, and of resamples of them."""

    sentences: int
    value: float
    scores: Any


Entries = dict[str, dict[str, Entry]]  # row -> column


class Numbers:
    """The numbers of an item by one measure."""

    def __init__(self, item: Item, found: Found, measure: str) -> None:
        self.item, self.measure = item, measure
        self._cells: dict[str, dict[str, dict[int, tuple[float, Row, str]]]] = {}
        self._scores: dict[tuple[str, str, str | None], _Scores | None] = {}
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
        return Entry(values, objective, self.against(name, BASELINE, column) if name != BASELINE else None)

    def against(self, name: str, base: str, column: str) -> Pair | None:
        """Two methods in a column; None if no seed has both."""
        a, b = (self._cells.get(one, {}).get(column, {}) for one in (name, base))
        both = sorted(seed for seed in a if seed in b)
        if not both:
            return None
        ours, theirs = (statistics.fmean(of[seed][0] for seed in both) for of in (a, b))
        return Pair(ours, theirs, len(both), self._p([(a[seed][1], b[seed][1]) for seed in both], column))

    def _p(self, pairs: Sequence[tuple[Row, Row]], column: str) -> float | None:
        """Each resample draws sentences, the same for all seeds, and of several seeds as many, with replacement."""
        import numpy

        found = [(self._resampled(a, column), self._resampled(b, column)) for a, b in pairs]
        both = [(a, b) for a, b in found if a is not None and b is not None and a.sentences == b.sentences]
        if len(both) < len(pairs):
            return None
        mean = statistics.fmean(a.value - b.value for a, b in both)
        differences = numpy.stack([a.scores - b.scores for a, b in both])
        drawn = numpy.random.default_rng(SEED).integers(len(both), size=differences.shape)
        return p_value(mean, numpy.take_along_axis(differences, drawn, 0).mean(0))

    def _resampled(self, row: Row, column: str) -> _Scores | None:
        """The score of the sentences behind a number, and of resamples of them; each made once."""
        measure, part = self.item.tested(column, row, self.measure)
        key = (row["hash"], measure, part)
        if key not in self._scores:
            texts = row.get("sentences", {}).get(measure, {})
            chosen = [text for name, text in texts.items() if part in (None, name)]
            sentences = joined([restored(measure, text) for text in chosen]) if chosen else None
            self._scores[key] = None
            if sentences is not None and len(sentences.rows) > 1:
                scores = resampled(sentences, SAMPLES, SEED)
                self._scores[key] = _Scores(len(sentences.rows), value(sentences), scores)
        return self._scores[key]


def entries(item: Item, found: Found, measure: str) -> Entries:
    """All numbers of a table, by method and column."""
    return Numbers(item, found, measure).entries()
