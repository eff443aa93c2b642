"""Records of a corpus: JSONL, TSV, plain text, aligned pairs of text files, Parquet; packed or not.

A record is a few named texts. What is not one is a `Problem` with its place, and reading goes on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..allocators import lacking
from .lines import MAX_BYTES, NOT_UNPACKED, PACKED, SHOWN, DataError, Line, Problem, Where, read_lines, seekable
from .values import finite, too_deep

ROWS = 100  # of Parquet that become Python objects together
FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".txt": "text",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class Record:
    where: Where
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        value = self.fields[name]
        assert isinstance(value, str)
        return value


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where records come from.

    Args:
        path: A file.
        pair: The other side of aligned text files.
        form: "jsonl", "tsv", "text", "pairs" or "parquet"; by the file's name if not given.
        needs: Fields that must be there, and be texts that are not empty.
        columns: Names of a TSV's columns (of text files: of the one field, or of both sides). None: the first line
            of a TSV has them.
        max_bytes: Longest line that is read.
    """

    path: Path
    pair: Path | None = None
    form: str | None = None
    needs: Sequence[str] = ()
    columns: Sequence[str] | None = None
    max_bytes: int = field(default=MAX_BYTES)

    def __post_init__(self) -> None:
        if (name := _twice(self.columns or ())) is not None:
            raise ValueError(f"{self.path}: two columns are named {name!r}; give them other names")

    def __iter__(self) -> Iterator[Record | Problem]:
        for item in _READERS[self.format](self):
            yield checked(item, self.needs) if isinstance(item, Record) else item

    @property
    def format(self) -> str:
        if self.form is not None:
            if self.form not in _READERS:
                raise DataError(f"{self.path}: unknown format {self.form!r}; there are {', '.join(_READERS)}")
            return self.form
        if self.pair is None:
            return _named(self.path)
        for side in (self.path, self.pair):
            if (form := _named(side)) != "text":
                raise DataError(f"{side}: {form} has both sides in one file: give it alone")
        return "pairs"


def _named(path: Path) -> str:
    """The format that a file's name says. Aligned text is often named by its language: train.en, train.fr.gz."""
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (*PACKED, *NOT_UNPACKED)]
    return FORMATS.get(suffixes[-1] if suffixes else ".txt", "text")


def _jsonl(corpus: Corpus) -> Iterator[Record | Problem]:
    for line in read_lines(corpus.path, corpus.max_bytes):
        if isinstance(line, Problem):
            yield line
        elif line.text.strip():
            yield _object(line)


def _object(line: Line) -> Record | Problem:
    def bad(reason: str, column: int | None = None) -> Problem:
        return Problem(Where(line.where.file, line.where.line, column), reason, line.raw[:SHOWN])

    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        if (name := _twice(name for name, _ in found)) is not None:
            twice.append(name)
        return dict(found)

    try:
        value = json.loads(line.text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        return bad(f"not JSON: {error.msg}", error.colno)
    except RecursionError:
        return bad("JSON that is nested too deeply")
    except ValueError as error:  # a number of thousands of digits, or NaN
        return bad(f"not JSON: {error}".partition(";")[0])
    if not isinstance(value, dict):
        return bad(f"a JSON {type(value).__name__}, not an object")
    if too_deep(line.text, value):
        return bad("JSON that is nested too deeply")
    if twice:
        return bad(f"the key {twice[0]!r} stands there twice")
    return Record(line.where, value)


def _twice(names: Iterable[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _tsv(corpus: Corpus) -> Iterator[Record | Problem]:
    names = corpus.columns
    for line in read_lines(corpus.path, corpus.max_bytes):
        if isinstance(line, Problem):
            yield line
            continue
        cells = line.text.split("\t")
        if names is None:
            names = cells
            if (name := _twice(names)) is not None:
                raise DataError(f"{line.where}: the first line names {name!r} twice; give the columns other names")
            missing = [name for name in corpus.needs if name not in names]
            if missing:
                raise DataError(
                    f"{line.where}: the first line has no column {missing[0]!r}, only "
                    f"{', '.join(map(repr, names[:8]))}; name the columns"
                )
        elif len(cells) != len(names):
            reason = f"{len(cells)} columns, not {len(names)}"
            yield Problem(line.where, reason, line.raw[:SHOWN])
        else:
            yield Record(line.where, dict(zip(names, cells, strict=True)))


def _text(corpus: Corpus) -> Iterator[Record | Problem]:
    (name,) = corpus.columns or ("text",)
    for line in read_lines(corpus.path, corpus.max_bytes):
        yield line if isinstance(line, Problem) else Record(line.where, {name: line.text})


def _pairs(corpus: Corpus) -> Iterator[Record | Problem]:
    assert corpus.pair is not None
    if len(corpus.columns or "ab") != 2:
        raise DataError(f"{corpus.path}: aligned files have two columns, not {len(corpus.columns or ())}")
    left, right = corpus.columns or ("source", "target")
    sides = zip_longest(read_lines(corpus.path, corpus.max_bytes), read_lines(corpus.pair, corpus.max_bytes))
    for a, b in sides:
        if isinstance(a, Problem):
            yield a
        elif isinstance(b, Problem):
            yield b
        elif a is None or b is None:
            there, other = (a, corpus.pair) if b is None else (b, corpus.path)
            yield Problem(there.where, f"no partner: {other} has fewer lines", there.raw[:SHOWN])
        else:
            yield Record(a.where, {left: a.text, right: b.text})


def _parquet(corpus: Corpus) -> Iterator[Record | Problem]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{corpus.path}: Parquet needs pyarrow: pip install errornorm[data]") from error
    number = 0
    try:
        with seekable(corpus.path) as file:
            content = pyarrow.parquet.ParquetFile(file)
            names = content.schema_arrow.names
            if (name := _twice(names)) is not None:
                raise DataError(f"{corpus.path}: two columns are named {name!r}; give them other names")
            _refuse_foreign(corpus.path, content.schema_arrow, pyarrow)
            for batch in content.iter_batches(batch_size=ROWS):
                for row in _rows(batch):
                    number += 1
                    where = Where(str(corpus.path), number)
                    row = row if isinstance(row, str) else _too_long(row, corpus.max_bytes) or row
                    yield Problem(where, row) if isinstance(row, str) else Record(where, row)
    # Damage, of the archive or in it; names that are no UTF-8.
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if lacking(error):
            raise
        about = " ".join(str(error).split())
        raise DataError(f"{corpus.path}: not readable as Parquet after row {number}: {about}") from error


def _rows(batch: Any) -> Iterator[dict[str, Any] | str]:
    """Each row, or why Python cannot hold its values: bytes that are no UTF-8, a date beyond the calendar."""
    try:
        yield from map(finite, batch.to_pylist())
    except (ValueError, OverflowError):
        for row in range(len(batch)):
            try:
                yield from map(finite, batch.slice(row, 1).to_pylist())
            except UnicodeDecodeError as error:
                yield f"not UTF-8 (byte 0x{error.object[error.start]:02x})"
            except (ValueError, OverflowError) as error:
                yield f"a value that cannot be read ({' '.join(str(error).split())})"


def _too_long(row: dict[str, Any], max_bytes: int) -> str | None:
    size = sum(len(value.encode()) for value in _leaves(row) if isinstance(value, str))
    return f"longer than {max_bytes} bytes ({size} bytes)" if size > max_bytes else None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield value


def _refuse_foreign(path: Path, kinds: Iterable[Any], pyarrow: Any) -> None:
    """Types that other packages have added to Arrow run their own code on a value, and some of them unpickle it."""
    for kind in kinds:
        inner = kind.type
        if isinstance(inner, pyarrow.BaseExtensionType) and not type(inner).__module__.startswith("pyarrow"):
            raise DataError(f"{path}: {kind.name!r} has the type {inner.extension_name!r}: save it as a plain one")
        _refuse_foreign(path, [inner.field(i) for i in range(inner.num_fields)], pyarrow)


_READERS = {"jsonl": _jsonl, "tsv": _tsv, "text": _text, "pairs": _pairs, "parquet": _parquet}


def checked(record: Record, needs: Sequence[str]) -> Record | Problem:
    def bad(reason: str) -> Problem:
        return Problem(record.where, reason, json.dumps(record.fields, default=str)[:SHOWN].encode())

    for name in needs:
        value = record.fields.get(name)
        if name not in record.fields:
            return bad(f"no field {name!r}")
        if not isinstance(value, str):
            return bad(f"field {name!r} is {_kind(value)}, not a text")
        if not value.strip():
            return bad(f"field {name!r} is empty")
        if "\0" in value:
            return bad(f"field {name!r} has a NUL character")
    try:
        json.dumps(record.fields, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return bad("half of a character (a lone surrogate)")
    return record


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
