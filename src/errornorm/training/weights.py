"""How much each token counts, from spans of characters: the mean over a token's own characters.

A span is [start, end, weight], half-open, in characters of the text. What no span covers has weight 1, and so has a
token without characters, as the end token. The white space before a token's first letter is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy

from ..data.lines import Problem
from ..data.records import Record
from ..evaluation.encode import letters_from

Spans = list[tuple[int, int, float]]
LARGEST = float(numpy.finfo(numpy.float32).max)


def spans_of(record: Record, field: str, text: str) -> Spans | Problem:
    """The spans in a field of a record, or why they cannot be used."""
    if field not in record.fields:
        return _bad(record, f"no field {field!r}")
    given = record.fields[field]
    if not isinstance(given, list):
        return _bad(record, f"field {field!r} is not a list of [start, end, weight]")
    spans: Spans = []
    for span in given:
        if not isinstance(span, list) or len(span) != 3 or not all(map(_is_number, span)):
            return _bad(record, f"field {field!r} has {_shown(span)}, not [start, end, weight]")
        start, end, weight = span
        if start != int(start) or end != int(end) or not 0 <= start <= end <= len(text):
            return _bad(record, f"field {field!r} has {_shown(span)} (of {len(text)} characters)")
        if not weight >= 0:
            return _bad(record, f"field {field!r} has a negative weight in {_shown(span)}")
        spans.append((int(start), int(end), float(weight)))
    spans.sort()
    if any(after[0] < before[1] for before, after in pairwise(spans)):
        return _bad(record, f"field {field!r} has spans that overlap")
    return spans


def _is_number(value: Any) -> bool:
    """Finite, also as a float32."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST


def _shown(span: Any) -> str:
    return str(span)[:60]


def _bad(record: Record, reason: str) -> Problem:
    return Problem(record.where, reason, str(record.fields)[:200].encode("utf-8", "replace"))


def of_tokens(
    tokenizer: Any, texts: Sequence[str], spans: Sequence[Spans], rows: Sequence[Sequence[int]], *, target: bool
) -> list[Any]:
    """Weights of the tokens that `encode` made of each text."""
    found = [numpy.ones(len(row), numpy.float32) for row in rows]
    which = [i for i, own in enumerate(spans) if own]
    if not which:
        return found
    key = "text_target" if target else "text"
    again = tokenizer(**{key: [texts[i] for i in which]}, return_offsets_mapping=True, verbose=False)
    for i, tokens, places in zip(which, again["input_ids"], again["offset_mapping"], strict=True):
        assert list(rows[i][: len(tokens)]) == tokens
        letters = numpy.ones(len(texts[i]))
        for start, end, weight in spans[i]:
            letters[start:end] = weight
        for place, (start, end) in enumerate(places):
            if start < end:
                found[i][place] = letters[letters_from(texts[i], start, end) : end].mean()
    return found
