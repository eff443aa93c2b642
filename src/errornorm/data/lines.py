"""Lines of a text file, one after another, whatever the file holds. What cannot be read is a `Problem`, not an abort.

Only a line feed ends a line (not U+2028, nor a lone carriage return), so numbers are those that an editor shows.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..allocators import LIMITS, lacking

MAX_BYTES = 2**20  # of a line
SHOWN = 200  # bytes of a bad line that are kept
BOM = b"\xef\xbb\xbf"
PACKED = (".gz", ".zst", ".zstd")
NOT_UNPACKED = (".bz2", ".xz", ".zip", ".lz4")
PIECE = 2**10  # packed bytes at a time: Zstandard makes 32 kB of one byte, so 32 MB


class DataError(Exception):
    """A file that cannot be used at all; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Where:
    file: str
    line: int  # from 1; 0: the whole file
    column: int | None = None  # from 1, in characters

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that cannot be used."""

    where: Where
    reason: str
    raw: bytes = b""  # the beginning of it


@dataclass(frozen=True, slots=True)
class Line:
    where: Where
    text: str
    raw: bytes  # without the line feed


@contextmanager
def reading(path: Path | str, remedy: str = "check the name") -> Iterator[None]:
    """A file that cannot be read is a `DataError`, unless nothing is wrong with it."""
    try:
        yield
    except OSError as error:
        if lacking(error):
            raise
        raise DataError(f"{path}: {error.strerror or error}; {remedy}") from error


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """An error of a full disk says where it happened."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in LIMITS:
            error.filename = str(path)
        raise


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked."""
    suffix = path.suffix.lower()
    if suffix in NOT_UNPACKED:
        raise DataError(f"{path}: packed as {suffix[1:]}: unpack it, or use .gz or .zst")
    with reading(path):
        if suffix == ".gz":
            file: Any = gzip.open(path, "rb")  # noqa: SIM115
        elif suffix in PACKED:
            file = _zstd(path)
        else:
            file = path.open("rb")
    try:
        yield file
    finally:
        file.close()


def require_again(*paths: Path | None) -> None:
    """Refuse what can be read only once."""
    for path in paths:
        if path is not None and path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path}: a pipe can be read only once; save it to a file")


@contextmanager
def seekable(path: Path) -> Iterator[IO[bytes]]:
    """The same, for a format that is not read from its beginning to its end."""
    with opened(path) as file:
        if path.suffix.lower() not in PACKED:
            yield file
            return
        with naming(tempfile.gettempdir()), tempfile.TemporaryFile() as plain:
            shutil.copyfileobj(file, plain)
            plain.seek(0)
            yield plain


def _zstd(path: Path) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise DataError(f"{path}: this file needs the package zstandard: pip install errornorm[data]") from error
    file = path.open("rb")
    return io.BufferedReader(_Pieces(file, _unpacked(file, zstandard)))


def _unpacked(file: IO[bytes], zstandard: Any) -> Iterator[bytes]:
    """Frame by frame: a plain stream would not notice that the last one is cut."""
    frame = None
    while piece := file.read(PIECE):
        while piece:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(piece)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error
            piece = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it ends inside a frame")


class _Pieces(io.RawIOBase):
    """Pieces of bytes, made of a file, as a file."""

    def __init__(self, packed: IO[bytes], pieces: Iterator[bytes]) -> None:
        self._packed, self._pieces, self._rest = packed, pieces, memoryview(b"")

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


def read_lines(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Line | Problem]:
    """Every line of a file, in order."""
    with opened(path) as file:
        yield from lines_of(file, str(path), max_bytes)


def lines_of(file: IO[bytes], name: str, max_bytes: int = MAX_BYTES) -> Iterator[Line | Problem]:
    """Every line of an open file, in order."""
    number = 0
    with reading(name, "check the disk"):
        while True:
            number += 1
            here = Where(name, number)
            try:
                raw = file.readline(max_bytes + 2)
                if not raw:
                    return
                if is_longer(raw, max_bytes):
                    yield Problem(here, f"longer than {max_bytes} bytes ({_skip(file, raw)})", raw[:SHOWN])
                    continue
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                yield Problem(here, f"the compressed file is cut or damaged from here on ({error})")
                return
            if number == 1:
                raw = raw.removeprefix(BOM)
            yield _decoded(here, _bare(raw))


def is_longer(raw: bytes, max_bytes: int) -> bool:
    """Whether what was read of a line, with its end if it has one, is too much."""
    return len(_bare(raw)) > max_bytes


def _bare(raw: bytes) -> bytes:
    """A line without its end."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def _skip(file: IO[bytes], raw: bytes) -> str:
    """Read on to the end of a line that is too long; say how long it is."""
    size, piece = len(raw), raw
    while piece and not piece.endswith(b"\n"):
        piece = file.readline(2**20)
        size += len(piece)
    return f"{size} bytes"


def _decoded(here: Where, raw: bytes) -> Line | Problem:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8", "replace")) + 1
        return Problem(Where(here.file, here.line, column), f"not UTF-8 (byte 0x{raw[error.start]:02x})", raw[:SHOWN])
    if "\0" in text:
        return Problem(Where(here.file, here.line, text.index("\0") + 1), "a NUL character", raw[:SHOWN])
    return Line(here, text, raw)
