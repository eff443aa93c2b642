"""Tokens, words and sentences of a table, each with its scores and whether it is noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..scoring.checks import PLACES, require_numbers
from ..scoring.objects import fields_of
from ..scoring.rank import AGGREGATED, AGGREGATES, SIGNS, aggregate, lists, of_tokens
from ..scoring.table import Scores
from ..scoring.words import word_of
from .groups import Grouping
from .labels import NAN, Judge, LabelError

Floats = NDArray[numpy.float64]
Ints = NDArray[numpy.int64]
LEVELS = ("token", "word", "sentence")
SCORES = {
    "token": tuple(SIGNS),
    "word": AGGREGATED,
    "sentence": (*AGGREGATED, "above"),
}


@dataclass(frozen=True, slots=True)
class Units:
    """Judged units of one level.

    Args:
        values: Of each score.
        noisy: Which are noise.
        texts: The text of each, counted over all texts that could be used.
        share: Of sentences: the share of their words that are noise.
    """

    values: dict[str, Floats]
    noisy: NDArray[numpy.bool_]
    texts: Ints
    share: Floats | None = None

    def __len__(self) -> int:
        return len(self.noisy)

    @property
    def mixed(self) -> bool:
        """Whether there are both, so that something can be told apart."""
        return bool(self.noisy.any() and not self.noisy.all())

    def of(self, chosen: NDArray[numpy.bool_]) -> Units:
        """Those of some texts, which are counted anew."""
        keep, numbers = chosen[self.texts], numpy.cumsum(chosen) - 1
        values = {name: column[keep] for name, column in self.values.items()}
        share = None if self.share is None else self.share[keep]
        return Units(values, self.noisy[keep], numbers[self.texts[keep]], share)


@dataclass
class Collected:
    units: dict[str, Units]
    groups: list[str]  # of each text that could be used
    clusters: list[str]  # what each of them is resampled with
    unusable: Counter[str] = field(default_factory=Counter)  # reasons
    unscored: int = 0  # judged words without a token that begins in them


def collect(scores: Scores, judge: Judge, levels: Sequence[str], grouping: Grouping, clustering: Grouping) -> Collected:
    """All judged units of a table, in memory."""
    columns = dict.fromkeys([*SIGNS, "above", "fields", "text", *PLACES, *grouping.columns])
    found = Collected({}, [], [])
    parts: dict[str, list[Units]] = {level: [] for level in levels}
    for rows in scores.batches(list(columns)):
        require_numbers(rows, SIGNS)
        batch = _Batch(rows, judge, len(found.groups))
        found.groups += list(compress(grouping.keys(rows), batch.usable))
        found.clusters += list(compress(clustering.keys(rows), batch.usable))
        found.unusable.update(batch.reasons)
        for level in levels:
            parts[level].append(getattr(batch, level)())
        found.unscored += batch.unscored
    found.units = {level: _joined(some) for level, some in parts.items()}
    return found


def _joined(parts: Sequence[Units]) -> Units:
    if not parts:
        return Units({}, numpy.zeros(0, bool), numpy.zeros(0, numpy.int64))
    shares = [part.share for part in parts if part.share is not None]
    return Units(
        {name: numpy.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
        numpy.concatenate([part.noisy for part in parts]),
        numpy.concatenate([part.texts for part in parts]),
        numpy.concatenate(shares) if shares else None,
    )


class _Batch:
    """Rows with their judgements; `usable` says which rows have one."""

    def __init__(self, rows: pa.RecordBatch, judge: Judge, before: int) -> None:
        self.values: Mapping[str, Floats] = {name: of_tokens(rows, name)[0] for name in SIGNS}
        self.bounds = of_tokens(rows, "nll")[1]
        self.above = rows["above"].to_numpy(zero_copy_only=False).astype(numpy.float64)
        starts, ends, word_starts, word_ends = (lists(rows[name])[0] for name in PLACES)
        self.word_bounds = lists(rows["word_start"])[1]
        self.tokens, self.words = numpy.full(len(starts), NAN), numpy.full(len(word_starts), NAN)
        self.owners = numpy.full(len(starts), -1)  # the word of each token, counted over the batch
        self.verdicts, self.shares = numpy.full(len(rows), NAN), numpy.full(len(rows), NAN)
        self.usable, self.reasons = numpy.zeros(len(rows), bool), Counter[str]()
        self.unscored = 0
        places, words = _pairs(starts, ends), _pairs(word_starts, word_ends)
        for row, fields in enumerate(fields_of(rows)):
            mine = slice(*self.bounds[row : row + 2].tolist())
            my_words = slice(*self.word_bounds[row : row + 2].tolist())
            try:
                judged = judge(fields, words[my_words], places[mine])
            except LabelError as problem:
                self.reasons[str(problem).partition(" (")[0]] += 1
                continue
            self.usable[row] = True
            owners = word_of(places[mine], words[my_words])
            self.owners[mine] = numpy.where(owners < 0, -1, owners + my_words.start)
            self.tokens[mine], self.words[my_words] = judged.tokens, judged.words
            self.verdicts[row], self.shares[row] = judged.text, judged.share
        self.numbers = before + numpy.cumsum(self.usable) - 1

    def token(self) -> Units:
        texts = numpy.repeat(self.numbers, numpy.diff(self.bounds))
        return _units(self.values, self.tokens, texts)

    def word(self) -> Units:
        inside = numpy.flatnonzero(self.owners >= 0)
        inside = inside[numpy.argsort(self.owners[inside], kind="stable")]
        owners = self.owners[inside]
        begins = numpy.flatnonzero(numpy.diff(owners, prepend=-1))
        which = owners[begins]
        texts = numpy.repeat(self.numbers, numpy.diff(self.word_bounds))
        self.unscored = int((~numpy.isnan(self.words)).sum() - (~numpy.isnan(self.words[which])).sum())
        bounds = numpy.append(begins, len(inside))
        values = _aggregated({name: column[inside] for name, column in self.values.items()}, bounds)
        return _units(values, self.words[which], texts[which])

    def sentence(self) -> Units:
        full = self.bounds[1:] > self.bounds[:-1]
        aggregated = _aggregated(self.values, self.bounds) | {"above": self.above}
        values = {name: column[full] for name, column in aggregated.items()}
        return _units(values, self.verdicts[full], self.numbers[full], self.shares[full])


def _aggregated(values: Mapping[str, Floats], bounds: Ints) -> dict[str, Floats]:
    return {f"{name}_{how}": aggregate(values[name], bounds, how) for name in SIGNS for how in AGGREGATES}


def _units(values: Mapping[str, Floats], labels: Floats, texts: Ints, share: Floats | None = None) -> Units:
    judged = ~numpy.isnan(labels)
    kept = {name: column[judged] for name, column in values.items()}
    return Units(kept, labels[judged] > 0, texts[judged], None if share is None else share[judged])


def _pairs(starts: NDArray[numpy.int32], ends: NDArray[numpy.int32]) -> list[tuple[int, int]]:
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
