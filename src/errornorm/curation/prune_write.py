"""What pruning writes: the kept corpus in the form of its input, weights of tokens, and what went with the reason."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

from ..data.files import real
from ..data.lines import PACKED, DataError, Problem, seekable
from ..data.records import Corpus, Record
from ..data.values import as_line
from ..scoring.objects import AGAIN, fields_of
from ..scoring.table import Scores
from .prune_choose import Chosen
from .prune_input import KEPT, Input, corpus_of

Spans = list[list[float]]  # start, end, weight
PLAIN = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
LONGEST = 2**40  # bytes of a line: what we wrote ourselves is only counted, and weights make lines longer


@contextmanager
def all_or_none(*paths: Path) -> Iterator[list[Path]]:
    """Hidden files to write to, which get their names together at the end, the first as the last, or leave nothing."""
    places = [real(path) for path in paths]
    parts = [
        place.with_name(f".{os.getpid()}.part.{path.name}")  # the suffix stays
        for place, path in zip(places, paths, strict=True)
    ]
    try:
        for path in places:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield parts
        for part, path in reversed([*zip(parts, places, strict=True)]):  # so whoever sees the output has all
            part.replace(path)
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file, packed by its suffix; the same content gives the same bytes."""
    with path.open("wb") as raw:
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
                yield file  # type: ignore[misc]
        elif path.suffix.lower() in PACKED:
            try:
                import zstandard
            except ImportError as error:
                raise ImportError(f"{path.suffix} needs the package zstandard: pip install errornorm[data]") from error
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed:
                yield packed
        else:
            yield raw
        raw.flush()
        os.fsync(raw.fileno())


def write_kept(given: Input, scores: Scores, states: bytes, output: Path, pair: Path | None) -> None:
    """The records that stay, byte for byte where the input has lines."""
    if given.form == "parquet":
        _write_parquet(given, states, output)
    elif given.form in ("dataset", "table"):
        with writing(output) as file:
            for line, fields in _fields(given, scores):
                if _is_kept(line, states):
                    file.write(_line(fields))
    else:
        for path, place in zip(given.files, (output, pair), strict=False):
            assert place is not None
            with writing(place) as file:
                for _, raw in given.raw(path, states):
                    file.write(raw)


def write_weighted(
    given: Input, scores: Scores, states: bytes, spans: Iterable[tuple[int, Spans]], output: Path, name: str
) -> None:
    """Every record as JSONL, with the spans of its weights in a field of that name."""
    weights = iter(spans)

    def of(line: int) -> Spans:
        found, own = next(weights, (0, []))
        if found != line:
            raise DataError(f"{scores.folder}: its rows are not in the order of the corpus; {AGAIN}")
        return own

    with writing(output) as file:
        if given.form == "jsonl":
            assert given.path is not None
            for line, raw in given.raw(given.path, states):
                file.write(_spliced(raw, name, of(line)) if _is_kept(line, states) else raw)
        else:
            for line, fields in _fields(given, scores):
                if _is_kept(line, states):
                    file.write(_line({**fields, name: of(line)}))


def write_removed(given: Input, scores: Scores, chosen: Chosen, output: Path) -> None:
    """A JSON object for each text that went: where it stood, and why it went."""
    first = 0
    with writing(output) as file:
        for batch in scores.batches(["record", "line", "context", "text", "fields"]):
            gone = chosen.dropped[first : first + len(batch)]
            indexes = (numpy.flatnonzero(gone) + first).tolist()
            some = batch.filter(pa.array(gone))
            for index, row, fields in zip(indexes, some.to_pylist(), fields_of(some), strict=True):
                said = {
                    "record": row["record"],
                    "where": given.where(row["line"]),
                    "reason": chosen.reason(index),
                    "by": chosen.rule.name,
                    "score": float(chosen.scores[index]),
                    **({"context": row["context"]} if row["context"] else {}),
                    "text": row["text"],
                    "fields": fields,
                }
                file.write(_line(said))
            first += len(batch)


def _is_kept(line: int, states: bytes) -> bool:
    return line < len(states) and states[line] == KEPT


def _spliced(raw: bytes, name: str, spans: Spans) -> bytes:
    """A JSON object with one more entry, and all else as it was written."""
    body = raw.rstrip(b" \t\r\n")
    assert body.endswith(b"}")
    entry = f", {json.dumps(name, ensure_ascii=False)}: {json.dumps(spans)}}}"
    return body[:-1] + entry.encode() + raw[len(body) :]


def _line(fields: Mapping[str, Any]) -> bytes:
    return as_line(fields).encode()


def _fields(given: Input, scores: Scores) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Number and fields of each record."""
    if given.form != "table":
        for item in given.items():
            if isinstance(item, Record):
                yield item.where.line, item.fields
        return
    for batch in scores.batches(["line", "context", "text", "fields"]):
        for row, fields in zip(batch.to_pylist(), fields_of(batch), strict=True):
            *before, text = given.names
            # Of a prompt that is made of several fields only its text is known.
            name = before[0] if len(before) == 1 else "context"
            yield row["line"], {**({name: row["context"]} if before else {}), text: row["text"]} | fields


def _write_parquet(given: Input, states: bytes, output: Path) -> None:
    assert given.path is not None
    kept = numpy.frombuffer(states, numpy.uint8) == KEPT
    first = 1
    with seekable(given.path) as source, pq.ParquetFile(source) as file, output.open("wb") as place:
        groups = file.metadata.num_row_groups
        codec = file.metadata.row_group(0).column(0).compression if groups and file.metadata.num_columns else "snappy"
        with pq.ParquetWriter(
            place, file.schema_arrow, compression="none" if codec == "UNCOMPRESSED" else codec
        ) as out:
            for batch in file.iter_batches():
                numbers = numpy.arange(first, first + len(batch))
                first += len(batch)
                mask = numpy.zeros(len(batch), bool)
                inside = numbers < len(kept)
                mask[inside] = kept[numbers[inside]]
                if mask.any():
                    out.write_batch(_filtered(batch, pa.array(mask), given.path))
        place.flush()
        os.fsync(place.fileno())


def _filtered(batch: pa.RecordBatch, mask: pa.Array, path: Path) -> pa.RecordBatch:
    """Some of the rows. Arrow has no filter for views: they are filtered as plain texts."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        plain = PLAIN.get(str(column.type))
        try:
            columns.append(column.filter(mask) if plain is None else column.cast(plain).filter(mask).cast(column.type))
        except pa.ArrowNotImplementedError as error:
            raise DataError(
                f"{path}: rows of the column {name!r} cannot be taken out ({column.type}): save it as a plain type"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def recount(output: Path, pair: Path | None, form: str, given: Input) -> int:
    """How many records a file has; all of them must be readable."""
    found = 0
    corpus = corpus_of(output, pair, form, given) if form == given.form else Corpus(output, form=form)
    for item in replace(corpus, max_bytes=LONGEST):
        if isinstance(item, Problem):
            raise DataError(f"{output.name}: line {item.where.line} cannot be read again ({item.reason})")
        found += 1
    return found
