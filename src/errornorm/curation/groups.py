"""Which group a text belongs to: by a field of its record, or by its length."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..data.values import MISSING, value_at
from ..near import near
from ..scoring.objects import fields_of
from ..scoring.rank import lists
from ..scoring.table import Scores

LENGTH = "length"
LENGTHS = (5, 10, 20, 40, 80, 160)  # words: the last of each group
NONE = "(none)"  # records without the field, or with nothing in it
NAMED = 50  # fields that an error may name


@dataclass(frozen=True, slots=True)
class Grouping:
    """Args:
    field: Of the record; a dotted name reaches into objects. `length` is the number of words. None: all in one.
    """

    field: str | None = None

    @property
    def columns(self) -> list[str]:
        return [] if self.field is None else ["word_start"] if self.field == LENGTH else ["fields"]

    def keys(self, rows: pa.RecordBatch) -> list[str]:
        """The group of each row."""
        if self.field is None:
            return ["all"] * len(rows)
        if self.field == LENGTH:
            bounds = lists(rows["word_start"])[1]
            return [length_group(words) for words in (bounds[1:] - bounds[:-1]).tolist()]
        values = (value_at(fields, self.field) for fields in fields_of(rows))
        return [NONE if value is MISSING or value in (None, "") else text_of(value) for value in values]


def check_field(scores: Scores, field: str) -> None:
    """Refuse a field that no record has."""
    names: dict[str, None] = {}
    for batch in scores.batches(["fields"]):
        for fields in fields_of(batch):
            if value_at(fields, field) is not MISSING:
                return
            if len(names) < NAMED:
                names.update(dict.fromkeys(_paths(fields)))
    there = f"there are {', '.join(list(names)[:NAMED])}" if names else "the records have no other fields than the text"
    raise ValueError(f"{scores.folder}: no record has the field {field!r}{near(field, names)}; {there}")


def text_of(value: Any) -> str:
    """A text stays as it is; anything else is its JSON.

    >>> text_of("web"), text_of(True), text_of([1, 2])
    ('web', 'true', '[1, 2]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def length_group(words: int) -> str:
    """
    >>> length_group(3), length_group(6), length_group(1000)
    ('up to 5 words', '6-10 words', 'over 160 words')
    """
    place = bisect_left(LENGTHS, words)
    if place == len(LENGTHS):
        return f"over {LENGTHS[-1]} words"
    return f"{LENGTHS[place - 1] + 1}-{LENGTHS[place]} words" if place else f"up to {LENGTHS[0]} words"


def _paths(fields: Mapping[str, Any], before: str = "", deep: int = 3) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and deep > 1:
            yield from _paths(value, f"{before}{name}.", deep - 1)
        else:
            yield before + name
