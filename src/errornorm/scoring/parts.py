"""A part of a corpus, scored: a few hundred records in, a table out.

A part depends on nothing but its records and the settings, so it has the same bytes whenever and wherever it is made.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import numpy
import pyarrow as pa
import torch
from numpy.typing import NDArray

from ..data.lines import Problem
from ..data.records import Record
from ..data.values import finite
from ..evaluation.encode import by_length
from . import rank, words
from .checks import STATISTICS
from .encode import Encoded, Encoder, windows
from .forward import Forward, Judged
from .table import ALTERNATIVE, CUTOFF, SCHEMA

BYTES = 2**22  # of text, after which a part ends however few its records are
FOUND = b"errornorm.part"  # what a part's file says about itself
_FIELD = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What scores depend on, beside model and corpus.

    Args:
        text_field: Field of the text that is scored.
        context: What the model reads before the text, with fields in braces: "{source}". Empty: nothing.
        cutoff: Above this error norm a token gets its rank and the model's own choices.
        alternatives: How many of those.
        records: Of a part: so many can be lost when a process is killed.
        tokens: Of a batch, padding included.
    """

    text_field: str
    context: str
    cutoff: float = CUTOFF
    alternatives: int = 5
    records: int = 1000
    tokens: int = 4096

    def __post_init__(self) -> None:
        for name in ("records", "tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")
        if not math.isfinite(self.cutoff):
            raise ValueError(f"cutoff={self.cutoff}: a finite number is needed")
        if self.alternatives < 0:
            raise ValueError(f"alternatives={self.alternatives}: 0 or more")

    @property
    def fields(self) -> list[str]:
        """Names of the fields that a record must have, the text last."""
        return [*dict.fromkeys(_FIELD.findall(self.context)), self.text_field]

    def before(self, record: Record) -> str:
        return _FIELD.sub(lambda match: record.text(match[1]), self.context)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of a part, and what stood between them."""

    number: int
    first: int  # number of the first item in the corpus
    items: list[Record | Problem]


def chunks(items: Iterable[Record | Problem], settings: Settings) -> Iterator[Chunk]:
    """Cut a corpus into parts. There is always one, even if it is empty."""
    taken: list[Record | Problem] = []
    number = first = size = 0
    for item in items:
        taken.append(item)
        if isinstance(item, Record):  # all texts: the table holds those that are not scored too
            size += sum(len(value) for value in item.fields.values() if isinstance(value, str))
        if len(taken) >= settings.records or size >= BYTES:
            yield Chunk(number, first, taken)
            number, first, taken, size = number + 1, first + len(taken), [], 0
    if taken or not number:
        yield Chunk(number, first, taken)


def items_digest(items: Iterable[Record | Problem]) -> str:
    """Of some records: it tells whether a corpus is still what it was."""
    found = hashlib.sha256()
    for item in items:
        said: Any = item.fields if isinstance(item, Record) else item.reason
        found.update(json.dumps([item.where.line, said], default=str).encode())
    return found.hexdigest()


def joint_digest(hashes: Iterable[str]) -> str:
    """Of a corpus, from those of its parts."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


@dataclass(slots=True)
class _Row:
    record: int
    where: Any
    context: str
    text: str
    fields: Mapping[str, Any]
    encoded: Encoded
    values: list[NDArray[numpy.float32]] = field(default_factory=list)  # [statistics, tokens] of each window
    alternatives: list[dict[str, Any]] = field(default_factory=list)


class Scorer:
    """A model with what is needed to score parts.

    Args:
        model: Encoder-decoder or causal, on its device.
        tokenizer: Its own.
        settings: See `Settings`.
        length: Most tokens that the model reads at once.
        prefix: What an encoder-decoder reads before each source: a language tag, an instruction.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: Settings, length: int, prefix: str = "") -> None:
        self.settings, self.prefix, self.length = settings, prefix, length
        self.encoder, self.forward = Encoder(model, tokenizer, length), Forward(model)
        self._text = lru_cache(2**17)(lambda token: tokenizer.decode([token]))

    def __call__(self, chunk: Chunk, tell: Callable[[int], None] = lambda tokens: None) -> pa.Table:
        """The table of a part. What was found wrong is in its metadata; `tell` is told about tokens that are done."""
        rows, problems = self._read(chunk)
        todo = [(row, window) for row in rows for window in windows(row.encoded, self.length)]
        for batch in by_length([window.size for _, window in todo], self.settings.tokens):
            self._score([todo[i] for i in batch])
            tell(sum(len(todo[i][1].places) for i in batch))
        table = self._table(rows)
        found = {
            "sha256": items_digest(chunk.items),
            "problems": problems,
            "tokens": len(table["token"].combine_chunks().values),
            "words": len(table["word_start"].combine_chunks().values),
        }
        return table.replace_schema_metadata({**SCHEMA.metadata, FOUND: json.dumps(found, ensure_ascii=False)})

    def _read(self, chunk: Chunk) -> tuple[list[_Row], list[dict[str, Any]]]:
        at = {chunk.first + i: item for i, item in enumerate(chunk.items)}
        records = [(number, item) for number, item in at.items() if isinstance(item, Record)]
        texts = [item.text(self.settings.text_field) for _, item in records]
        contexts = [self.settings.before(item) for _, item in records]
        if self.encoder.encoder_decoder:
            read = [self.prefix + context for context in contexts]
        else:
            read = [_joined(context, text) for context, text in zip(contexts, texts, strict=True)]
        rows = []
        for (number, item), context, text, encoded in zip(
            records, contexts, texts, self.encoder.encode(read, texts), strict=True
        ):
            if isinstance(encoded, str):
                at[number] = Problem(item.where, encoded, text.encode()[:200])
                continue
            others = {name: value for name, value in item.fields.items() if name not in self.settings.fields}
            rows.append(_Row(number, item.where, context, text, others, encoded))
        problems = [
            {
                "record": number,
                "where": str(item.where),
                "reason": item.reason,
                "text": item.raw.decode("utf-8", "replace"),
            }
            for number, item in at.items()
            if isinstance(item, Problem)
        ]
        return rows, problems

    def _score(self, batch: Sequence[tuple[_Row, Encoded]]) -> None:
        judged = self.forward(self.encoder.batch([window for _, window in batch]))
        columns = torch.stack([getattr(judged.stats, name).float() for name in STATISTICS]).cpu().numpy()
        bounds = numpy.cumsum([0, *(len(window.places) for _, window in batch)])
        found = self._alternatives(judged)
        for (row, _), (begin, end) in zip(batch, pairwise(bounds), strict=True):
            done = sum(part.shape[1] for part in row.values)
            row.alternatives += [{"token": i - begin + done, **found[i]} for i in range(begin, end) if i in found]
            row.values.append(columns[:, begin:end])

    def _alternatives(self, judged: Judged) -> dict[int, dict[str, Any]]:
        which = (judged.stats.error_norm > self.settings.cutoff).nonzero().squeeze(1)
        if not len(which) or not self.settings.alternatives:
            return {}
        ranks, best, shares = self.forward.alternatives(judged, which, self.settings.alternatives)
        columns = zip(which.tolist(), ranks.tolist(), best.tolist(), shares.tolist(), strict=True)
        return {
            i: {"rank": place, "texts": [self._text(token) for token in tokens], "p": p}
            for i, place, tokens, p in columns
        }

    def _table(self, rows: Sequence[_Row]) -> pa.Table:
        counts = [len(row.encoded.places) for row in rows]
        empty = numpy.zeros((len(STATISTICS), 0), numpy.float32)
        values = numpy.concatenate([part for row in rows for part in row.values] or [empty], axis=1)
        columns = dict(zip(STATISTICS, values, strict=True))
        spans = [words.words(row.text) for row in rows]
        numbers = [len(found) for found in spans]
        places = list(chain.from_iterable(row.encoded.places for row in rows))
        data = {
            "record": pa.array([row.record for row in rows], pa.int64()),
            "line": pa.array([row.where.line for row in rows], pa.int64()),
            "context": pa.array([row.context for row in rows], pa.string()),
            "text": pa.array([row.text for row in rows], pa.string()),
            "fields": pa.array([_json(row.fields) for row in rows], pa.string()),
            "token": _lists([token for row in rows for token in row.encoded.scored], counts, pa.int32()),
            "start": _lists([start for start, _ in places], counts, pa.int32()),
            "end": _lists([end for _, end in places], counts, pa.int32()),
            "alternatives": _lists([a for row in rows for a in row.alternatives],
                                   [len(row.alternatives) for row in rows], ALTERNATIVE),
            "word_start": _lists([start for found in spans for start, _ in found], numbers, pa.int32()),
            "word_end": _lists([end for found in spans for _, end in found], numbers, pa.int32()),
            **{name: _lists(column, counts, pa.float32()) for name, column in columns.items()},
            **self._of_words(rows, spans, columns),
            **self._of_texts(columns, counts),
        }  # fmt: skip
        return pa.table([data[name] for name in SCHEMA.names], schema=SCHEMA)

    def _of_words(
        self, rows: Sequence[_Row], spans: Sequence[list[tuple[int, int]]], columns: Mapping[str, words.Floats]
    ) -> dict[str, pa.Array]:
        numbers = [len(found) for found in spans]
        owners, before = [numpy.zeros(0, numpy.int64)], 0
        for row, found in zip(rows, spans, strict=True):
            own = words.word_of(row.encoded.places, found)
            owners.append(numpy.where(own >= 0, own + before, -1))
            before += len(found)
        owner, out = numpy.concatenate(owners), {}
        for name in ("nll", "error_norm"):
            for how, column in zip(("mean", "max"), words.of_words(columns[name], owner, before), strict=True):
                out[f"word_{name}_{how}"] = _lists(column, numbers, pa.float32())
        above = (columns["error_norm"] > self.settings.cutoff).astype(numpy.float32)
        out["word_above"] = _lists(words.of_words(above, owner, before)[0], numbers, pa.float32())
        return out

    def _of_texts(self, columns: Mapping[str, words.Floats], counts: Sequence[int]) -> dict[str, pa.Array]:
        bounds = numpy.cumsum([0, *counts])
        wanted = [(f"{name}_{how}", columns[name], how) for name in ("nll", "error_norm", "entropy")
                  for how in ("mean", "max")]  # fmt: skip
        above = (columns["error_norm"] > self.settings.cutoff).astype(numpy.float32)
        wanted.append(("above", above, "mean"))
        return {
            name: pa.array(rank.aggregate(column.astype(numpy.float64), bounds, how), pa.float32(), from_pandas=True)
            for name, column, how in wanted
        }


def _json(fields: Mapping[str, Any]) -> str:
    """NaN and Inf are null, as in what `corrupt` writes."""
    return json.dumps(finite(fields), ensure_ascii=False, allow_nan=False, default=str)


def _joined(context: str, text: str) -> str:
    """What stands before a text, with a space between them if there is no white space."""
    apart = not context or context[-1].isspace() or text[:1].isspace()
    return context if apart else context + " "


def _lists(values: Any, counts: Sequence[int], kind: Any) -> pa.Array:
    bounds = pa.array(numpy.cumsum([0, *counts]), pa.int32())
    return pa.ListArray.from_arrays(bounds, pa.array(values, kind, from_pandas=True))
