"""What people say about a text: which of its words are noise, or whether it is as a whole.

| a record's field | says |
|---|---|
| a list with 0, 1 or null for each word between white space | which words are noisy, or not judged |
| a list of [start, end] | characters that are noisy; what is not named is clean |
| one value: 0, 1, true, false, or a text | whether the whole text is noisy |

Other values need to be told which of them mean noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from ..data.values import MISSING, value_at
from ..near import near
from ..scoring.objects import fields_of
from ..scoring.table import Scores
from ..scoring.words import word_of
from .groups import text_of

Floats = NDArray[numpy.float64]
Spans = Sequence[tuple[int, int]]
NAN = float("nan")
PLAIN = {0: 0.0, 1: 1.0}  # True and False are equal to them
SEEN = 1000  # different labels that are counted


class LabelError(Exception):
    """A record whose label cannot be used; a reason, and details in parentheses."""


@dataclass(frozen=True, slots=True)
class Judged:
    """1 is noisy, 0 is clean, NaN is not judged."""

    tokens: Floats
    words: Floats
    text: float
    share: float  # of the judged words that are noisy


class Judge:
    """Reads the labels of records.

    Args:
        field: Where they are; a dotted name reaches into objects.
        kind: "words", "spans" or "text"; see `kind_of`.
        positive: Labels that mean noise, as texts. None: labels are 0 and 1.
    """

    def __init__(self, field: str, kind: str, positive: Sequence[str] | None = None) -> None:
        self.field, self.kind = field, kind
        self.positive = None if positive is None else frozenset(positive)
        self.seen: Counter[str] = Counter()

    def __call__(self, fields: Mapping[str, Any], words: Spans, places: Spans) -> Judged:
        value = value_at(fields, self.field)
        if value is MISSING or value is None:
            raise LabelError("no label")
        if kind_of(value) not in (self.kind, "empty"):
            raise LabelError("a label of another kind than the first ones")
        owners = word_of(places, words)
        if self.kind == "text":
            verdict = self._verdict(value)
            given = numpy.full(len(words), verdict)
            return Judged(_of_tokens(given, owners), given, verdict, verdict)
        if self.kind == "spans":
            spans = _spans(value)
            given = _covered(words, spans)
            return Judged(numpy.where(owners < 0, NAN, _covered(places, spans)), given, *_whole(given))
        if len(value) != len(words):
            raise LabelError(f"not as many labels as words ({len(value)} labels, {len(words)} words)")
        given = numpy.array([NAN if one is None else self._verdict(one) for one in value], dtype=numpy.float64)
        return Judged(_of_tokens(given, owners), given, *_whole(given))

    def _verdict(self, value: Any) -> float:
        if self.positive is not None:
            text = text_of(value)
            if len(self.seen) < SEEN or text in self.seen:
                self.seen[text] += 1
            return float(text in self.positive)
        if isinstance(value, (int, float)) and value in PLAIN:
            return PLAIN[int(value)]
        raise LabelError(f"a label that is not 0 or 1 ({text_of(value)[:40]!r})")

    def check(self) -> None:
        """Refuse names of labels that no record has."""
        for name in sorted(self.positive or ()):
            if name not in self.seen and len(self.seen) < SEEN:
                there = ", ".join(label for label, _ in self.seen.most_common(8))
                raise ValueError(
                    f"no {self.field} is {name!r}{near(name, self.seen)}; there are {there or 'no labels at all'}"
                )


def kind_of(value: Any) -> str:
    """
    >>> kind_of([0, 1]), kind_of([[3, 8]]), kind_of("copied"), kind_of([])
    ('words', 'spans', 'text', 'empty')
    """
    if not isinstance(value, list):
        return "text"
    first = next((one for one in value if one is not None), None)
    return "spans" if isinstance(first, list) else "words" if value else "empty"


def find_kind(scores: Scores, field: str) -> str:
    """The kind of the first label that says it; an empty list may be either."""
    for batch in scores.batches(["fields"]):
        for fields in fields_of(batch):
            value = value_at(fields, field)
            if value is not MISSING and value is not None and (kind := kind_of(value)) != "empty":
                return kind
    return "spans"


def _of_tokens(words: Floats, owners: NDArray[numpy.int64]) -> Floats:
    if not len(words):
        return numpy.full(len(owners), NAN)
    return numpy.where(owners < 0, NAN, words[owners])


def _whole(words: Floats) -> tuple[float, float]:
    judged = words[~numpy.isnan(words)]
    return (float(judged.any()), float(judged.mean())) if len(judged) else (NAN, NAN)


def _spans(value: list[Any]) -> Spans:
    for span in value:
        whole = isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)
        if not whole or not 0 <= span[0] <= span[1]:
            raise LabelError(f"a span that is not [start, end] ({text_of(span)[:40]})")
    return [(start, end) for start, end in value]


def _covered(places: Spans, spans: Spans) -> Floats:
    """1 for each range of characters that a span touches."""
    out = numpy.zeros(len(places))
    if not len(places):
        return out
    starts, ends = numpy.asarray(places).T
    for start, end in spans:
        out[(starts < end) & (ends > start)] = 1
    return out
