"""JSON objects in files that others may have made: read, or refused in a line that names the file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..data.lines import DataError
from ..data.values import too_deep

AGAIN = "score the corpus again"
_PART = b"part"  # entry of a batch's metadata: the file it is from


def read_object(text: str | bytes, where: Path | str, remedy: str = AGAIN) -> dict[str, Any]:
    """
    >>> read_object('{"site": "a.org"}', "meta.json")
    {'site': 'a.org'}
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"a JSON {type(found).__name__}, not an object")
        if too_deep(text, found):
            raise RecursionError
    except RecursionError as error:
        raise DataError(f"{where}: damaged (JSON that is nested too deeply); {remedy}") from error
    except ValueError as error:
        raise DataError(f"{where}: damaged ({error}); {remedy}") from error
    return found


def from_part(rows: pa.RecordBatch, part: Path) -> pa.RecordBatch:
    """Rows that know their file."""
    return rows.replace_schema_metadata({_PART: os.fsencode(part)})


def part_of(rows: pa.RecordBatch | pa.Table) -> str:
    return os.fsdecode((rows.schema.metadata or {}).get(_PART, b"the table"))


def fields_of(rows: pa.RecordBatch | pa.Table) -> Iterator[dict[str, Any]]:
    """The other fields of each record."""
    where = f"{part_of(rows)}: fields"
    return (read_object(text or "{}", where) for text in rows["fields"].to_pylist())
