"""From tokens to words: which word a token belongs to, and means and maxima of its tokens.

Shapes: W words of all texts, one text after another; N tokens of all texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float32]
Ints = NDArray[numpy.int64]
_WORD = re.compile(r"\S+")


def words(text: str) -> list[tuple[int, int]]:
    """Ranges of characters between white space.

    >>> words("un chien  court")
    [(0, 2), (3, 8), (10, 15)]
    """
    return [match.span() for match in _WORD.finditer(text)]


def word_of(places: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> Ints:
    """The word that each token belongs to: the one it begins in, or the next; -1 for what stands behind the last.

    >>> word_of([(0, 2), (3, 6), (6, 8), (8, 8)], [(0, 2), (3, 8)]).tolist()
    [0, 1, 1, -1]
    """
    ends = numpy.fromiter((end for _, end in spans), numpy.int64, len(spans))
    starts = numpy.fromiter((start for start, _ in places), numpy.int64, len(places))
    found = numpy.searchsorted(ends, starts, side="right")
    return numpy.where(found < len(spans), found, -1)


def of_words(values: Floats, owners: Ints, count: int) -> tuple[Floats, Floats]:
    """Mean [W] and maximum [W] of each word's tokens; NaN for a word without a token of its own."""
    inside = owners >= 0
    owners, values = owners[inside], values[inside]
    totals = numpy.bincount(owners, values, count)
    sizes = numpy.bincount(owners, minlength=count)
    highest = numpy.full(count, -numpy.inf)
    numpy.maximum.at(highest, owners, values)
    with numpy.errstate(invalid="ignore"):
        means = totals / sizes
    return means.astype(numpy.float32), numpy.where(sizes > 0, highest, numpy.nan).astype(numpy.float32)
