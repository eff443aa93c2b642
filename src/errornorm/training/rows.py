"""JSON lines that grow while a run goes on, and are whole rows whenever it ends."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..data.files import written
from ..data.lines import DataError
from ..data.values import escaped
from .disk import sync


def strict(value: Any) -> Any:
    """The value as JSON can have it: a number that is not finite becomes null, and `not_finite` says what it was.

    >>> strict({"step": 3, "grad_norm": float("inf")})
    {'step': 3, 'grad_norm': None, 'not_finite': {'grad_norm': 'inf'}}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        odd = {str(key): str(v) for key, v in value.items() if isinstance(v, float) and not math.isfinite(v)}
        return {str(key): strict(v) for key, v in value.items()} | ({"not_finite": odd} if odd else {})
    if isinstance(value, (list, tuple)):
        return [strict(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def dumps(value: Any, indent: int | None = None) -> str:
    return escaped(json.dumps(strict(value), ensure_ascii=False, allow_nan=False, indent=indent))


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row, by one write. If it does not fit on the disk, nothing of it stays."""
    line = (dumps(row) + "\n").encode()
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            size = size if file.read(1) == b"\n" else _mended(path)
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            file.truncate(size)  # the next row must not follow half a row
            error.filename = str(path)
            raise


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows. Half a row at the end, as a crash may leave it, does not count."""
    return [row for _, row in _rows(path)]


def truncate(path: Path, step: int) -> None:
    """Keep the rows up to a step, and those without one."""
    with written(path) as file:
        file.writelines(line + "\n" for line, row in _rows(path) if row.get("step", step) <= step)
    sync(path.parent)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            text = line.decode("utf-8")
            row = json.loads(text)
        except ValueError as error:
            if number == len(lines):
                return
            where = f"{path}:{number}:{getattr(error, 'colno', 1)}"
            raise DataError(f"{where}: not JSON; remove the line, or start a new run") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: not a JSON object; remove the line, or start a new run")
        yield text, row


def _mended(path: Path) -> int:
    """The size of a file, once half a row is off its end, or a whole row there has its line feed."""
    with path.open("r+b") as file:
        size = file.read().rfind(b"\n") + 1
        file.seek(size)
        try:
            json.loads(file.read())
        except ValueError:
            return file.truncate(size)
        file.write(b"\n")
        return file.tell()
