"""The table of scores: one row for each record, in the order of the input, in a few Parquet files.

    SCORES/
      meta.json          what was scored, by which model, how many; it is written last, so it says that all is there
      part-00000.parquet
      quarantine.jsonl   lines that could not be used, if there are any

| column | holds |
|---|---|
| `record` | number of the record in the input, from 0; quarantined ones count too |
| `line` | of the file, or row of the data set, from 1 |
| `context` | what the model read before the text: a source, a prompt; empty if nothing |
| `text` | what was scored |
| `fields` | JSON object of the record's other fields |
| `token` | number of each token in the vocabulary |
| `start`, `end` | of each token: its characters in the text; the end token has an empty range behind the last |
| `nll`, `error_norm`, `entropy`, `p_target`, `margin` | of each token: its statistics |
| `alternatives` | of each token above the cutoff: its place, the target's rank (1 is the best), the best entries |
| `word_start`, `word_end` | of each word: its characters in the text |
| `word_nll_mean`, `word_nll_max`, `word_error_norm_mean`, `word_error_norm_max`, `word_above` | of each word |
| `nll_mean`, `nll_max`, `error_norm_mean`, `error_norm_max`, `entropy_mean`, `entropy_max`, `above` | of the text |

`above` is the share of tokens whose error norm is above the cutoff. A word is what stands between white space.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..allocators import lacking
from ..data.files import real, written_bytes
from ..data.lines import DataError
from .checks import STATISTICS, checked, odd_entry, ranges
from .objects import AGAIN, from_part, read_object

META, QUARANTINE, PART = "meta.json", "quarantine.jsonl", "part-{:05d}.parquet"
VERSION = 1  # of the schema
ROWS = 4096  # that are read at a time
CUTOFF = 1.1  # of error norms, if no other is given
ORIGIN = ("errornorm", "command", "model", "corpus", "settings")  # of the meta data, for what is made from a table
_INTS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())
ALTERNATIVE = pa.struct([("token", pa.int32()), ("rank", pa.int32()), ("texts", pa.list_(pa.string())), ("p", _FLOATS)])
SCHEMA = pa.schema(
    [
        ("record", pa.int64()),
        ("line", pa.int64()),
        ("context", pa.string()),
        ("text", pa.string()),
        ("fields", pa.string()),
        *((name, _INTS) for name in ("token", "start", "end")),
        *((name, _FLOATS) for name in STATISTICS),
        ("alternatives", pa.list_(ALTERNATIVE)),
        ("word_start", _INTS),
        ("word_end", _INTS),
        *((f"word_{name}_{how}", _FLOATS) for name in ("nll", "error_norm") for how in ("mean", "max")),
        ("word_above", _FLOATS),
        *((f"{name}_{how}", pa.float32()) for name in ("nll", "error_norm", "entropy") for how in ("mean", "max")),
        ("above", pa.float32()),
    ],
    metadata={"errornorm.scores": str(VERSION)},
)


@dataclass(frozen=True)
class Scores:
    """A finished table of scores.

    Example:
        scores = Scores.open("scores")
        scores.table(["record", "error_norm_max"]).to_pandas()
    """

    folder: Path
    meta: Mapping[str, Any]

    @staticmethod
    def open(folder: Path | str) -> Scores:
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; errornorm score makes one")
        if not (folder / META).is_file():
            begun = any(folder.glob("part-*.parquet"))
            rest = "the scoring is not finished; run it again, it goes on"
            raise DataError(f"{folder}: {rest if begun else 'no scores there; errornorm score makes some'}")
        meta = read_object((folder / META).read_bytes(), folder / META)
        if (version := meta.get("schema")) != VERSION:
            raise DataError(f"{folder}: scores of schema {version}, and this version reads {VERSION}; score again")
        if entry := odd_entry(meta):
            raise DataError(f"{folder / META}: damaged ({entry}); {AGAIN}")
        scores = Scores(folder, meta)
        _require_parts(folder, meta["parts"])
        scores._require_rows()
        return scores

    @property
    def parts(self) -> list[Path]:
        return parts_in(self.folder, self.meta["parts"])

    def _require_rows(self) -> None:
        """All rows are there, and none twice. Of each part only its end is read, which describes it."""
        rows, last = 0, -1
        for part in self.parts:
            try:
                about = pq.read_metadata(part)
            except (pa.ArrowException, OSError) as error:
                if lacking(error):
                    raise
                raise DataError(f"{part}: not readable ({error}); {AGAIN}") from error
            rows += about.num_rows
            for low, high in ranges(about, "record"):
                if low <= last:
                    raise DataError(f"{part}: record {low} comes after record {last}; {AGAIN}")
                last = high
        if rows != len(self):
            raise DataError(f"{self.folder}: {rows} rows in its parts, but {len(self)} in {META}; {AGAIN}")

    @property
    def quarantine(self) -> Path | None:
        path = self.folder / QUARANTINE
        return path if path.is_file() else None

    def __len__(self) -> int:
        return int(self.meta["used"])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """A few thousand rows at a time, in the order of the input."""
        for part in self.parts:
            try:
                with pq.ParquetFile(part) as file:
                    if missing := [name for name in columns or SCHEMA.names if name not in file.schema_arrow.names]:
                        raise DataError(f"{part}: no column {missing[0]!r}; {AGAIN}")
                    other = [name for name in columns or SCHEMA.names if not _same(file.schema_arrow.field(name))]
                    if other:
                        raise DataError(f"{part}: the column {other[0]!r} has another type; {AGAIN}")
                    for rows in file.iter_batches(ROWS, columns=None if columns is None else list(columns)):
                        yield checked(from_part(rows, part))
            except pa.ArrowException as error:
                raise DataError(f"{part}: not readable ({error}); {AGAIN}") from error

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once."""
        chosen = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
        return pa.Table.from_batches(self.batches(columns), schema=chosen)


def refuse_among_scores(place: Path, name: str) -> None:
    """Refuse a place in a folder of scores, which `score` would not go on with. `name` is for the advice."""
    whole = real(place)
    for folder in (whole, *whole.parents):
        if (folder / META).is_file() and (folder / PART.format(0)).is_file():
            raise ValueError(
                f"{place}: the folder of the scores is for them alone: choose a place beside it, such as "
                f"{folder.parent / name}"
            )


def _require_parts(folder: Path, count: int) -> None:
    """One after another, since the count may be anything, and ends at the first that is not there."""
    for number in range(count):
        part = PART.format(number)
        if not (folder / part).is_file():
            raise DataError(f"{folder}: {part} is missing; {AGAIN}")


def _same(field: pa.Field) -> bool:
    return bool(field.type == SCHEMA.field(field.name).type)


def write_part(path: Path, table: pa.Table) -> None:
    """There completely, or not at all; equal tables give equal bytes."""
    if not path.parent.is_dir():  # made anew, it would be without the earlier parts
        raise DataError(f"{path.parent}: the folder was removed while the corpus was scored; run it again")
    with written_bytes(path) as file:
        pq.write_table(table, file, compression="zstd")


def parts_in(folder: Path, count: int) -> list[Path]:
    """Where the parts of a table are that has so many."""
    return [folder / PART.format(number) for number in range(count)]


def parts_of(folder: Path) -> list[Path]:
    """The parts of a table, in the order of the corpus."""
    return sorted(folder.glob("part-*.parquet"), key=number_of)


def number_of(part: Path) -> int:
    """The number in a part's name; of another file, one that no part has."""
    found = part.stem.removeprefix("part-")
    return int(found) if found.isdecimal() else sys.maxsize
