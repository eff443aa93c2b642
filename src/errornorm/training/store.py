"""Token sequences and their weights on disk, memory-mapped: a corpus may be larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy

TOKEN = numpy.dtype("<i4")
WEIGHT = numpy.dtype("<f4")
END = numpy.dtype("<i8")


class Ragged:
    """Sequences of different lengths, one behind the other in one file; a second file says where each ends."""

    def __init__(self, path: Path, dtype: Any = TOKEN) -> None:
        self.tokens = _mapped(path.with_suffix(".tokens"), dtype)
        self.ends = _mapped(path.with_suffix(".ends"), END)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Any:
        start = self.ends[index - 1] if index else 0
        return self.tokens[start : self.ends[index]]

    @property
    def lengths(self) -> Any:
        return numpy.diff(self.ends, prepend=0).astype(TOKEN)


class Writer:
    """Makes a Ragged."""

    def __init__(self, path: Path, dtype: Any = TOKEN) -> None:
        self.dtype = dtype
        path.parent.mkdir(parents=True, exist_ok=True)
        self._tokens: IO[bytes] = path.with_suffix(".tokens").open("wb")
        self._ends: IO[bytes] = path.with_suffix(".ends").open("wb")
        self._end = 0

    def append(self, row: Sequence[float]) -> None:
        self._tokens.write(numpy.asarray(row, self.dtype).tobytes())
        self._end += len(row)
        self._ends.write(numpy.asarray(self._end, END).tobytes())

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tokens.close()
        self._ends.close()


def _mapped(path: Path, dtype: Any) -> Any:
    if path.stat().st_size == 0:
        return numpy.zeros(0, dtype)
    return numpy.memmap(path, dtype, mode="r")
