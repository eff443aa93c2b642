"""A text and its tokens as the page holds them: a short JSON array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from ..scoring.words import word_of
from .grid import LOSS_UNIT, NORM_UNIT, known, whole
from .texts import shown, to_json

COLUMNS = ("record", "line", "context", "text", "fields", "start", "end", "nll", "error_norm", "entropy",
           "alternatives", "word_start", "word_end")  # fmt: skip
MOST_BYTES = 6_000  # of a text, with everything
TOKEN, GAP, ALTERNATIVE = 48, 24, 32  # characters
ENTROPY_UNIT, SHARE_UNIT = 100, 10_000
LABELS = "labels"


@dataclass(frozen=True, slots=True)
class Room:
    """How much of a text is kept."""

    tokens: int
    alternatives: int  # of each token
    context: int  # characters
    token: int = TOKEN


ROOMS = (Room(120, 5, 500), Room(80, 5, 300), Room(60, 3, 200), Room(40, 3, 200), Room(24, 2, 120), Room(12, 1, 60, 10))


def encode(row: dict[str, Any], why: int, groups: Sequence[int]) -> str:
    """The most that fits; `fields` of the row is an object. A long text is cut to the tokens around its worst one."""
    for room in ROOMS:
        text = to_json(_pack(row, why, groups, room))
        if len(text.encode()) <= MOST_BYTES:
            return text
    return text


def _pack(row: dict[str, Any], why: int, groups: Sequence[int], room: Room) -> list[Any]:
    norms = numpy.asarray(row["error_norm"], numpy.float64)
    nlls = numpy.asarray(row["nll"], numpy.float64)
    begin, end = window(norms, room.tokens)
    inside = slice(begin, end)
    starts, ends = row["start"][inside], row["end"][inside]
    cut = end < len(norms)
    rest = "" if cut or not ends else row["text"][max(ends) :]
    if not len(norms):
        rest = row["text"]
    entropy = known(numpy.asarray(row["entropy"][inside], numpy.float64))
    return [
        row["record"],
        row["line"],
        shown(row["context"] or "", room.context),
        pieces(row["text"], starts, ends, room.token),
        whole(norms[inside], NORM_UNIT),
        whole(nlls[inside], LOSS_UNIT),
        numpy.rint(entropy * ENTROPY_UNIT).astype(int).tolist(),
        list(_alternatives(row["alternatives"] or [], begin, end, room)),
        why,
        list(groups),
        len(norms),
        begin,
        shown(rest, 80),
        max(whole(norms, NORM_UNIT), default=-1),
        _mean(norms, NORM_UNIT),
        _mean(nlls, LOSS_UNIT),
        _labelled(row, begin, end),
    ]


def window(norms: NDArray[Any], most: int) -> tuple[int, int]:
    """The tokens to keep, with the worst among them.

    >>> window(numpy.array([0.1, 0.2, 1.3, 0.1]), 2)
    (1, 3)
    """
    if len(norms) <= most:
        return 0, len(norms)
    worst = int(numpy.argmax(numpy.nan_to_num(norms)))
    begin = min(max(worst - 2 * most // 3, 0), len(norms) - most)
    return begin, begin + most


def pieces(text: str, starts: Sequence[int], ends: Sequence[int], most: int = TOKEN) -> list[str]:
    """What stands between tokens goes to the next one; what two tokens share, to the first.

    >>> pieces("un chien", [0, 3, 8], [2, 8, 8])
    ['un', ' chien', '']
    """
    made: list[str] = []
    done = starts[0] if starts else 0
    for start, end in zip(starts, ends, strict=True):
        gap, token = text[done:start], text[max(start, done) : end]
        long = f"‹{len(token):,} characters›" if len(token) > most else ""
        made.append(shown(gap, min(GAP, most)) + shown(token, most) + long)
        done = max(done, end)
    return made


def _alternatives(rows: Sequence[dict[str, Any]], begin: int, end: int, room: Room) -> Iterator[list[Any]]:
    for row in rows:
        if begin <= row["token"] < end:
            best = list(zip(row["texts"], row["p"], strict=True))[: room.alternatives]
            p = [round(min(max(share, 0.0), 1.0) * SHARE_UNIT) for _, share in best]
            texts = [shown(text or "", min(ALTERNATIVE, room.token)) for text, _ in best]
            yield [row["token"] - begin, row["rank"], texts, p]


def _mean(values: NDArray[Any], unit: int) -> int:
    numbers = values[numpy.isfinite(values)]
    return round(float(numbers.mean()) * unit) if len(numbers) else -1


def _labelled(row: dict[str, Any], begin: int, end: int) -> list[int]:
    """Tokens of words that the record says are wrong: a list of 0 and 1, as long as there are words."""
    labels = row["fields"].get(LABELS)
    spans = list(zip(row["word_start"], row["word_end"], strict=True))
    if not isinstance(labels, list) or len(labels) != len(spans) or not all(label in (0, 1) for label in labels):
        return []
    owners = word_of(list(zip(row["start"], row["end"], strict=True)), spans)[begin:end]
    return [place for place, owner in enumerate(owners.tolist()) if owner >= 0 and labels[owner]]
