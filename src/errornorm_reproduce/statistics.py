"""Rows of a table from rows of results: means and standard deviations over seeds, and tests against likelihood."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from errornorm.evaluation.significance import joined, p_value, resampled, value

from .measures import restored
from .plan import Found, Item
from .store import Row

SAMPLES, SEED = 1000, 12345
BASELINE = "MLE"


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


def entries(item: Item, found: Found, measure: str) -> Entries:
    """All numbers of a table, by method and column."""
    cells: dict[str, dict[str, dict[int, tuple[float, Row, str]]]] = {}
    for cell, row in found:
        for column, number in item.values(cell, row, measure).items():
            place = cells.setdefault(cell.row, {}).setdefault(column, {})
            place[cell.seed] = (number, row, cell.objective)
    tested = _Tested()
    out: Entries = {}
    for name, columns in cells.items():
        for column, seeds in columns.items():
            base = cells.get(BASELINE, {}).get(column, {}) if name != BASELINE else {}
            both = [seed for seed in seeds if seed in base]
            difference = statistics.fmean(seeds[s][0] - base[s][0] for s in both) if both else None
            p = tested.p([(seeds[s][1], base[s][1]) for s in both], measure, column)
            values = {seed: number for seed, (number, _, _) in sorted(seeds.items())}
            objective = next(iter(seeds.values()))[2]
            out.setdefault(name, {})[column] = Entry(values, objective, difference, p)
    return out


@dataclass
class _Tested:
    """Resampled scores, each made once."""

    done: dict[tuple[str, str], Any] = field(default_factory=dict)

    def p(self, pairs: list[tuple[Row, Row]], measure: str, column: str) -> float | None:
        found = [(self._scores(a, measure, column), self._scores(b, measure, column)) for a, b in pairs]
        both = [(a, b) for a, b in found if a is not None and b is not None]
        if not both or len(both) < len(pairs):
            return None
        differences = [a[1] - b[1] for a, b in both]
        mean = statistics.fmean(a[0] - b[0] for a, b in both)
        return p_value(mean, sum(differences[1:], differences[0]) / len(both))

    def _scores(self, row: Row, measure: str, column: str) -> tuple[float, Any] | None:
        parts = row.get("sentences", {}).get(measure)
        if not parts:
            return None
        chosen = {name: text for name, text in parts.items() if name == column} or parts
        key = (row["hash"], measure + "|" + "|".join(chosen))
        if key not in self.done:
            sentences = joined([restored(measure, text) for text in chosen.values()])
            few = len(sentences.rows) < 2
            self.done[key] = None if few else (value(sentences), resampled(sentences, SAMPLES, SEED))
        return self.done[key]  # type: ignore[no-any-return]
