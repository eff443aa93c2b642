"""Whether rows are as `score` writes them. Others may have made them, and what reads them relies on it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..data.lines import DataError
from .objects import AGAIN, part_of

STATISTICS = ("nll", "error_norm", "entropy", "p_target", "margin")
WHOLE = ("record", "line", "context", "text", "fields")  # never null
PLACES = ("start", "end", "word_start", "word_end")
TOKENS = ("token", "start", "end", *STATISTICS)
COUNTS = ("records", "used", "quarantined", "tokens", "parts")  # in meta.json
KINDS = {"model": dict, "corpus": dict, "settings": dict, "versions": dict, "command": list}  # in meta.json


def odd_entry(meta: Mapping[str, Any]) -> str | None:
    """What in the meta data is not of its type. The counts must be there; a table need not say the other things."""
    for name in COUNTS:
        value = meta.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return f"{name!r} is {value!r:.40}, and not a count"
    for name, kind in KINDS.items():
        if not isinstance(meta.get(name), kind | None):
            return f"{name!r} is {meta[name]!r:.40}"
    cutoff = (meta.get("settings") or {}).get("cutoff", 0.0)
    if not isinstance(cutoff, int | float) or not abs(cutoff) <= sys.float_info.max:
        return f"the cutoff is {cutoff!r:.40}"
    return None


def ranges(about: pq.FileMetaData, name: str) -> Iterator[tuple[int, int]]:
    """The lowest and the highest value of a column of whole numbers in each row group, where the file says them."""
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == name and column.physical_type == "INT64":
                said = column.statistics
                if said is not None and said.has_min_max:
                    yield said.min_raw, said.max_raw


def checked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, of which any columns may be there. Places are compared with the text where it is there too."""
    names = rows.schema.names
    for name in names:
        if name in WHOLE and rows[name].null_count:
            raise _odd(rows, name, "has nulls")
    _aligned(rows, [name for name in names if name in TOKENS])
    _aligned(rows, [name for name in names if name.startswith("word_")])
    for name in names:
        if name in ("token", *PLACES) and rows[name].values.null_count:
            raise _odd(rows, name, "has nulls")
    if "text" in names:
        _inside(rows, [name for name in names if name in PLACES])
    if "alternatives" in names:
        _paired(rows)
    return rows


def require_numbers(rows: pa.RecordBatch, names: Iterable[str]) -> None:
    """Where one NaN would spoil the sums over all tokens."""
    for name in names:
        values = rows[name].flatten()
        if values.null_count or numpy.isnan(values.to_numpy(zero_copy_only=False)).any():
            raise DataError(f"{part_of(rows)}: the column {name!r} has NaN; {AGAIN}, with more bits (float32)")


def _odd(rows: pa.RecordBatch, name: str, why: str) -> DataError:
    return DataError(f"{part_of(rows)}: the column {name!r} {why}; {AGAIN}")


def _aligned(rows: pa.RecordBatch, names: list[str]) -> None:
    """Lists of the same tokens, or words, are equally long."""
    for name in names:
        if rows[name].null_count:
            raise _odd(rows, name, "has nulls")
        if not pc.list_value_length(rows[name]).equals(pc.list_value_length(rows[names[0]])):
            raise _odd(rows, name, f"has not as many entries as {names[0]!r}")


def _inside(rows: pa.RecordBatch, names: list[str]) -> None:
    """An end may be anywhere before: some tokenizers give odd ones."""
    lengths = pc.utf8_length(rows["text"]).to_numpy()
    for name in names:
        values = rows[name].flatten().to_numpy()
        room = numpy.repeat(lengths, pc.list_value_length(rows[name]).to_numpy())
        if (values > room).any() or (name.endswith("start") and (values < 0).any()):
            raise _odd(rows, name, "has places outside of the text")


def _paired(rows: pa.RecordBatch) -> None:
    """Each alternative has a token, a rank, and as many probabilities as texts."""
    columns = rows["alternatives"].flatten().flatten()
    texts, shares = columns[2:]
    numbers = shares.flatten()
    known = not any(column.null_count for column in (*columns, numbers)) and not pc.any(pc.is_nan(numbers)).as_py()
    if not known or not pc.list_value_length(texts).equals(pc.list_value_length(shares)):
        raise _odd(rows, "alternatives", "is not complete")
