"""Standard streams that are closed, full, or read by nobody."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

OUT = "standard output"


@contextmanager
def sound_streams() -> Iterator[None]:
    """Inside, one that was closed before the start (`>&-`) leads nowhere, and others fail as their class says."""
    before = sys.stdin, sys.stdout, sys.stderr
    for name, mode, kind in (("stdin", "r", None), ("stdout", "w", _Out), ("stderr", "w", _Err)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
        elif kind is not None:
            setattr(sys, name, _over(kind, stream))
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        sys.stdin, sys.stdout, sys.stderr = before


class _Out(io.FileIO):
    """Fails once, by its name, and leads nowhere from then on: else Python would fail once more at its end."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUT
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise


class _Err(io.FileIO):
    """Never fails. That nobody can read it is no reason to stop, or to end with another code."""

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            return super().write(data) or len(data)
        return len(data)


def _over(kind: type[io.FileIO], stream: Any) -> Any:
    """The same stream; what is no plain file (a Windows console, that of a test) as it is."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer
    if type(raw) is not io.FileIO:
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(raw.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
