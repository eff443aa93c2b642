"""Where the rows of a report come from: a folder of scores, or a table in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ..scoring.objects import read_object
from ..scoring.table import SCHEMA, Scores

MOST_KINDS = 1_000  # of reasons


class Rows(Protocol):
    """What a report reads; `Scores` is one."""

    @property
    def meta(self) -> Mapping[str, Any]: ...

    @property
    def quarantine(self) -> Path | None: ...

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Held:
    """A table in memory: nothing is known about its model, and nothing was quarantined."""

    held: pa.Table
    quarantine: Path | None = None

    @property
    def meta(self) -> Mapping[str, Any]:
        return {"records": len(self.held), "used": len(self.held), "quarantined": 0}

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        chosen = self.held if columns is None else self.held.select(list(columns))
        yield from chosen.to_batches(max_chunksize=2**14)


def open_rows(scores: Any) -> Rows:
    """The rows of what a user gives: a folder, its `Scores`, a pyarrow table, a pandas data frame."""
    if isinstance(scores, (str, Path)):
        return Scores.open(scores)
    if isinstance(scores, Scores):
        return scores
    if not isinstance(scores, pa.Table) and not hasattr(scores, "columns"):
        raise TypeError(f"a report is about a folder of scores or a table, not about {type(scores).__name__}")
    names = scores.column_names if isinstance(scores, pa.Table) else list(scores.columns)
    if missing := [name for name in SCHEMA.names if name not in names]:
        raise ValueError(f"the table has no column {missing[0]!r}: give a table that errornorm score made")
    if isinstance(scores, pa.Table):
        return Held(scores.select(SCHEMA.names).cast(SCHEMA))
    return Held(pa.Table.from_pandas(scores, SCHEMA, preserve_index=False))


@dataclass(slots=True)
class Quarantined:
    """Lines that were not used: all of them counted, the first of each reason kept."""

    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lines: list[tuple[str, str, str]] = field(default_factory=list)  # place, reason, beginning


def read_quarantine(path: Path | None, most: int) -> Quarantined:
    """At most so many lines, and none of the reasons takes all the room."""
    found = Quarantined()
    if path is None:
        return found
    fair = max(1, most // 5)
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = read_object(line, f"{path}:{number}")
            where, reason, text = (str(row.get(name) or "") for name in ("where", "reason", "text"))
            kind = reason.partition(" (")[0][:200]
            if kind not in found.reasons and len(found.reasons) >= MOST_KINDS:
                kind = "other reasons"
            found.total += 1
            found.reasons[kind] += 1
            if len(found.lines) < most and found.reasons[kind] <= fair:
                found.lines.append((where[:400], reason[:400], text[:400]))
    return found
