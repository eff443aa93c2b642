"""Scores on disk or in memory, as one thing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from .table import Scores

ROWS = 4096  # of a batch


@dataclass(frozen=True)
class InMemory(Scores):
    """Rows that `score` returned, or a user made; of quarantined records they know nothing."""

    rows: pa.Table

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        rows = self.rows
        if columns is not None:
            if missing := [name for name in columns if name not in rows.column_names]:
                raise ValueError(f"the table has no column {missing[0]!r}: give one that `score` made")
            rows = rows.select(list(columns))
        yield from rows.to_batches(max_chunksize=ROWS)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self.rows if columns is None else self.rows.select(list(columns))


def scores_of(given: Any) -> Scores:
    """Of a folder, its `Scores`, a pyarrow table or a pandas data frame."""
    if isinstance(given, Scores):
        return given
    if isinstance(given, str | Path):
        return Scores.open(given)
    if hasattr(given, "iterrows"):
        given = pa.Table.from_pandas(given, preserve_index=False)
    if not isinstance(given, pa.Table):
        raise ValueError(f"scores are a folder, a pyarrow table or a pandas data frame, not {type(given).__name__}")
    context = "context" in given.column_names and any(given["context"].to_pylist())
    return InMemory(
        Path("the table"),
        {
            "records": len(given),
            "used": len(given),
            "quarantined": 0,
            "corpus": {"format": "table", "fields": ["source", "target"] if context else ["text"]},
        },
        given,
    )
