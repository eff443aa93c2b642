"""Which rows the page shows: some of every kind, the same ones each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy
from numpy.typing import NDArray

Ints = NDArray[numpy.int64]
Floats = NDArray[numpy.float64]


def lots(records: Ints) -> Floats:
    """A number for each record that looks random, and is always the same (splitmix64)."""
    x = records.astype(numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return (x ^ (x >> numpy.uint64(31))).astype(numpy.float64)


@dataclass(slots=True)
class Best:
    """The rows with the lowest keys, a few of each bucket; batch after batch."""

    most: int
    bucket: Ints = field(default_factory=lambda: numpy.empty(0, numpy.int64))
    key: Floats = field(default_factory=lambda: numpy.empty(0, numpy.float64))
    row: Ints = field(default_factory=lambda: numpy.empty(0, numpy.int64))

    def offer(self, row: Ints, key: NDArray[Any], bucket: NDArray[Any] | None = None) -> None:
        """Keys that are no number are not taken."""
        good = numpy.isfinite(key)
        if bucket is None and len(self.row) == self.most:
            good &= key <= self.key[-1]  # sorting the others would be in vain
        buckets = numpy.zeros(len(row), numpy.int64) if bucket is None else bucket.astype(numpy.int64)
        self.bucket = numpy.concatenate([self.bucket, buckets[good]])
        self.key = numpy.concatenate([self.key, key[good].astype(numpy.float64)])
        self.row = numpy.concatenate([self.row, row[good]])
        order = numpy.lexsort((self.row, self.key, self.bucket))
        place = _place_in_run(self.bucket[order])
        kept = order[place < self.most]
        self.bucket, self.key, self.row = self.bucket[kept], self.key[kept], self.row[kept]

    def rows(self, buckets: Iterable[int] | None = None) -> list[int]:
        """The best of each bucket, then the second of each, and so on."""
        inside = numpy.ones(len(self.row), bool) if buckets is None else numpy.isin(self.bucket, list(buckets))
        place = _place_in_run(self.bucket[inside])
        return [int(row) for row in self.row[inside][numpy.argsort(place, kind="stable")]]


def _place_in_run(values: Ints) -> Ints:
    """Of each entry, how many before it are in the same run of equal values.

    >>> _place_in_run(numpy.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    number = numpy.arange(len(values))
    first = numpy.ones(len(values), bool)
    first[1:] = values[1:] != values[:-1]
    return number - numpy.maximum.accumulate(numpy.where(first, number, 0))


def in_turn(queues: Iterable[list[int]]) -> Iterator[int]:
    """One of each queue, then the next of each; no row twice.

    >>> list(in_turn([[1, 2, 3], [2, 9]]))
    [1, 2, 9, 3]
    """
    seen: set[int] = set()
    for turn in zip_longest(*queues):
        for row in turn:
            if row is not None and row not in seen:
                seen.add(row)
                yield row
