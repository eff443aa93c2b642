"""One process at a time in a folder. The lock of a process that was killed is free again."""

from __future__ import annotations

import errno
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.files import written

if TYPE_CHECKING:
    from filelock import FileLock


class BusyError(OSError):
    """Another process has the folder."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Of a folder, which must be there."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / ".lock"

    @property
    def owner(self) -> Path:
        """Who has the lock, for the message to others."""
        return self.folder / ".lock.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out."""
        lock = self._acquired()
        try:
            since = datetime.now().astimezone().isoformat(" ", "seconds")
            with written(self.owner) as file:
                file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}) + "\n")
            yield
        finally:
            self.owner.unlink(missing_ok=True)
            lock.release()

    def require_free(self) -> None:
        """Refuse a folder that another process has at this moment. Writes nothing."""
        if self.file.is_file():
            with suppress(PermissionError):
                self._acquired().release()

    def _acquired(self) -> FileLock:
        try:
            from filelock import FileLock, Timeout
        except ImportError as error:
            raise ImportError("locking a folder needs filelock: pip install errornorm[train]") from error
        if self.file.is_symlink():  # the file that it leads to would be emptied
            raise ValueError(f"{self.file} is a link: remove it, or choose another output")
        lock = FileLock(self.file, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise self._busy() from None
        return lock

    def _busy(self) -> BusyError:
        who = "another process"
        for _ in range(5):  # it may be about to write who it is
            with suppress(OSError, ValueError, KeyError):
                owner = json.loads(self.owner.read_text("utf-8"))
                who = f"process {owner['pid']} on {owner['host']} since {owner['since']}"
                break
            time.sleep(0.05)
        text = f"{self.folder} is in use by {who}: wait for it, stop it, or choose another output"
        return BusyError(errno.EBUSY, text)
