"""Full disks, as libraries tell of them; and names that are on the disk for good."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..allocators import FULL, LIMITS

OTHER = {errno.EIO, errno.ESTALE, errno.EROFS, errno.EFBIG, errno.EBADF}  # why else a write fails

_SAID = re.compile(
    r"no space left on device|disk quota exceeded|not enough space on the disk|file too large"  # of Rust
    r"|\d+ requested and \d+ written",  # numpy: an OSError without a number
    re.IGNORECASE,
)
_UNSAID = re.compile(r"PytorchStreamWriter failed|unexpected pos \d+ vs \d+|iostream error")  # torch.save


def disk_full(error: BaseException) -> bool:
    """Whether an error, or one behind it, means that no more can be written. Not every library raises an OSError.

    `torch.save` to a path does not say why a write failed; a full disk is by far the most frequent reason.
    """
    chain = _chain(error)
    numbers = {link.errno for link in chain if isinstance(link, OSError)}
    texts = [str(link) for link in chain if isinstance(link, Exception)]
    if numbers & FULL or any(map(_SAID.search, texts)):
        return True
    return not numbers & OTHER and any(map(_UNSAID.search, texts))


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Tell of a full disk, or of a limit, by an OSError with a path, whatever the library that noticed it raises."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        named = number is not None and getattr(error, "filename", None)
        if named or not (number in LIMITS or disk_full(error)):
            raise
        if number in LIMITS:
            raise OSError(number, os.strerror(number), str(path)) from error
        said = " ".join(str(error).split())[:200]
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} ({said})", str(path)) from error


def sync(folder: Path) -> None:
    """Bring the names inside a folder to the disk."""
    if os.name != "posix":  # elsewhere folders cannot be opened
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        link = todo.pop()
        if link is not None and link not in found:
            found.append(link)
            todo += [link.__cause__, link.__context__]
    return found
