"""Files to write: where they may be, and that they are there completely, or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .lines import naming


def real(path: Path) -> Path:
    """Where a name leads; of links in a circle, one of them (`Path.resolve` would raise an error for those)."""
    return Path(os.path.realpath(path))


def require_place(output: Path, *inputs: Path | None) -> None:
    """Refuse a name that no file can have, or that of what is read."""
    if output.is_dir():
        raise ValueError(f"{output} is a folder: choose another name for the output")
    if output.exists() and not output.is_file():
        raise ValueError(f"{output} is a device or a pipe: choose another name for the output")
    if any(_leads_to(number, output) for number in (1, 2)):  # it would be replaced, and what is printed be lost
        raise ValueError(f"{output} is where this command prints: choose another name for the output")
    if real(output).is_symlink():
        raise ValueError(f"{output} is a link that leads to itself: choose another name for the output")
    if real(output) in {real(path) for path in inputs if path}:
        raise ValueError(f"{output} is also the input: choose another name for the output")


def _leads_to(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except OSError:  # it is closed, or there is no such file yet
        return False


def require_utf8(*paths: Path | None) -> None:
    """Refuse names that no text can hold, where they are to be written down."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path}: this name is not UTF-8: rename it, or choose another") from error


@contextmanager
def written(path: Path) -> Iterator[IO[str]]:
    """A text that is there completely, or not at all. A link is replaced: give the `real` path to follow it."""
    with written_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield text
        text.detach()


@contextmanager
def written_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The same for any file."""
    if path.exists() and not path.is_dir():
        require_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # of a process that was killed; or a link that leads elsewhere
    try:
        with naming(path), part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
