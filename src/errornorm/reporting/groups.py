"""Counts for each value of a field: sources, languages, lengths."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy
from numpy.typing import NDArray

from ..curation.groups import NONE, text_of
from ..data.values import MISSING, value_at
from .grid import LOSS, NORM, Counts, known
from .sample import Best, Ints

MOST_VALUES = 5_000  # of the field that the user names; further ones are counted together
FACET_FIELDS, FACET_VALUES = 4, 20  # a field of few values is worth a filter
LONG_VALUE = 300  # characters
LENGTHS = (0, 9, 17, 33, 65, 129)  # tokens
LENGTH = "length in tokens"
WORST, RANDOM = 4, 6  # rows of each group for the page


@dataclass(slots=True)
class Batch:
    """Numbers of some rows, as every count needs them."""

    row: Ints  # number in the table
    lot: NDArray[numpy.float64]
    norms: NDArray[Any]
    nlls: NDArray[Any]
    bounds: Ints  # of the rows in the lists of tokens
    norm_place: Counts
    loss_place: Counts
    norm_mean: NDArray[numpy.float64]

    @property
    def sizes(self) -> Ints:
        return numpy.diff(self.bounds)


@dataclass(slots=True)
class Grouping:
    """All values of one field. The last entry of each array is for the values beyond `most`."""

    name: str
    most: int
    strict: bool = False  # give up when there are more values
    index: dict[str, int] = field(default_factory=dict)
    tables: dict[str, NDArray[Any]] = field(default_factory=dict)
    worst: Best = field(default_factory=lambda: Best(WORST))
    random: Best = field(default_factory=lambda: Best(RANDOM))
    full: bool = False

    def number(self, value: str) -> int:
        """Of a value, or of all others."""
        found = self.index.get(value)
        if found is None:
            if len(self.index) >= self.most:
                self.full = True
                return self.most
            found = self.index[value] = len(self.index)
        return found

    def add(self, values: Sequence[str], batch: Batch) -> None:
        which = numpy.fromiter((self.number(value) for value in values), numpy.int64, len(values))
        if self.strict and self.full:
            return
        if not self.tables:
            self._grow(0)
        self._grow(int(which.max(initial=0)) + 1)
        of_token = numpy.repeat(which, batch.sizes)
        size = len(self.tables["rows"])
        self.tables["rows"] += numpy.bincount(which, minlength=size)
        self.tables["tokens"] += numpy.bincount(of_token, minlength=size)
        self.tables["norm"] += numpy.bincount(of_token, known(batch.norms), size)
        self.tables["nll"] += numpy.bincount(of_token, known(batch.nlls), size)
        numpy.add.at(self.tables["norm_place"], (of_token, batch.norm_place), 1)
        numpy.add.at(self.tables["loss_place"], (of_token, batch.loss_place), 1)
        self.worst.offer(batch.row, -batch.norm_mean, which)
        self.random.offer(batch.row, batch.lot, which)

    def _grow(self, size: int) -> None:
        have = len(self.tables["rows"]) if self.tables else 0
        if have and size <= have:
            return
        size = max(size, 2 * have, 8)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("rows", "tokens", "norm", "nll"), (size,))
        shapes |= {"norm_place": (size, len(NORM) + 1), "loss_place": (size, len(LOSS) + 1)}
        for name, shape in shapes.items():
            larger = numpy.zeros(shape, numpy.float64 if name in ("norm", "nll") else numpy.int64)
            if have:
                larger[:have] = self.tables[name]
            self.tables[name] = larger

    def rows_of(self, number: int) -> int:
        return int(self.tables["rows"][number]) if self.tables else 0

    def largest(self, most: int) -> list[int]:
        """Numbers of the values to show: half by size, the others by their mean error norm; those of few rows last."""
        every = list(range(len(self.index)))
        if len(every) <= most:
            return every
        rows, tokens, norm = (self.tables[name] for name in ("rows", "tokens", "norm"))
        by_size = sorted(every, key=lambda k: (-int(tokens[k]), k))[: most // 2]
        mean = norm / numpy.maximum(tokens, 1)
        rest = sorted(set(every) - set(by_size), key=lambda k: (rows[k] < WORST, -mean[k], k))
        return sorted(by_size + rest[: most - len(by_size)])


class Groupings:
    """The field that the user names, fields of few values, and the length."""

    def __init__(self, group_by: str | None) -> None:
        self.named = None if group_by is None else Grouping(group_by, MOST_VALUES)
        self.facets: dict[str, Grouping] = {}
        self.lengths = Grouping(LENGTH, len(LENGTHS))
        self.lengths.index = {label: k for k, label in enumerate(length_labels())}
        self.seen: set[str] = set()  # names of fields in the rows
        self.found = False  # the field that the user names
        self.rows = 0

    def add(self, records: Sequence[dict[str, Any]], batch: Batch) -> None:
        for record in records:
            if len(self.seen) < MOST_VALUES:
                self.seen.update(record)
        if self.named is not None:
            name = self.named.name
            self.found = self.found or any(value_at(record, name) is not MISSING for record in records)
            self.named.add([value_of(record, self.named.name) for record in records], batch)
        self._find_facets(records)
        for name, facet in list(self.facets.items()):
            facet.add([value_of(record, name) for record in records], batch)
            if facet.full:
                del self.facets[name]
        self.lengths.add([length_label(size) for size in batch.sizes.tolist()], batch)
        self.rows += len(records)

    def _find_facets(self, records: Sequence[dict[str, Any]]) -> None:
        """Only in the first batch: a field that comes later would have counted too little."""
        if self.rows or self.facets:
            return
        named = self.named.name if self.named else None
        for name in dict.fromkeys(name for record in records for name in record):
            values = [record.get(name) for record in records]
            plain = all(value is None or isinstance(value, (str, bool, int)) for value in values)
            few = plain and 2 <= len(set(values)) <= min(FACET_VALUES, max(2, len(values) // 2))
            if few and name != named and len(self.facets) < FACET_FIELDS:
                self.facets[name] = Grouping(name, FACET_VALUES, strict=True)

    def all(self) -> list[Grouping]:
        facets = [facet for facet in self.facets.values() if len(facet.index) > 1]
        return [*([self.named] if self.named else []), *facets, self.lengths]

    def values(self, record: dict[str, Any], tokens: int) -> list[str]:
        """Of a record: its value in each of them."""
        return [length_label(tokens) if g is self.lengths else value_of(record, g.name) for g in self.all()]


def value_of(record: dict[str, Any], name: str) -> str:
    """As text, whatever it is; bounded, for it is kept."""
    value = value_at(record, name)
    if value is MISSING or value is None or value == "":
        return NONE
    text = text_of(value)
    if len(text) <= LONG_VALUE:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{digest}: {text[:LONG_VALUE]}"  # two long values may begin alike


def length_label(tokens: int) -> str:
    return length_labels()[bisect_right(LENGTHS, tokens) - 1]


@cache
def length_labels() -> tuple[str, ...]:
    """
    >>> length_labels()
    ('up to 8', '9–16', '17–32', '33–64', '65–128', '129 and more')
    """
    between = [f"{low}–{high - 1}" for low, high in pairwise(LENGTHS[1:])]
    return (f"up to {LENGTHS[1] - 1}", *between, f"{LENGTHS[-1]} and more")
