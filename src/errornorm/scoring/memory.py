"""Scores on disk or in memory, as one thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..data.lines import DataError
from .checks import checked
from .objects import from_part
from .table import ROWS, SCHEMA, Scores

NAME = Path("the table")


@dataclass(frozen=True)
class InMemory(Scores):
    """Rows that `score` returned, or a user made; of quarantined records they know nothing."""

    rows: pa.Table

    @property
    def quarantine(self) -> None:
        return None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        rows = self.rows
        if columns is not None:
            if missing := [name for name in columns if name not in rows.column_names]:
                raise ValueError(f"the table has no column {missing[0]!r}: give one that `score` made")
            rows = rows.select(list(columns))
        for batch in rows.to_batches(max_chunksize=ROWS):
            if len(batch):  # a table may have empty pieces
                yield checked(from_part(batch, NAME))

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self.rows if columns is None else self.rows.select(list(columns))


def scores_of(given: Any) -> Scores:
    """Of a folder, its `Scores`, a pyarrow table or a pandas data frame."""
    if isinstance(given, Scores):
        return given
    if isinstance(given, str | Path):
        return Scores.open(given)
    names = list(getattr(given, "column_names", getattr(given, "columns", ())))
    if not isinstance(given, pa.Table) and not hasattr(given, "iterrows"):
        raise ValueError(f"scores are a folder, a pyarrow table or a pandas data frame, not {type(given).__name__}")
    rows = pa.table({name: _column(given[name], name) for name in names})
    context = "context" in names and any(rows["context"].to_pylist())
    return InMemory(
        NAME,
        {
            "records": len(rows),
            "used": len(rows),
            "quarantined": 0,
            "corpus": {"format": "table", "fields": ["source", "target"] if context else ["text"]},
        },
        rows,
    )


def _column(values: Any, name: str) -> Any:
    """Of the type that `score` writes: with more bits, equal scores would not be equal to what is made of them."""
    kind = SCHEMA.field(name).type if name in SCHEMA.names else None
    try:
        if not isinstance(values, pa.ChunkedArray):
            return pa.array(values, kind, from_pandas=True)
        return values if kind is None else values.cast(kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise DataError(f"{NAME}: the column {name!r} is not as `score` makes it ({error})") from error
