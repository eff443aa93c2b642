"""Folders that are there completely, or not at all, whenever the process is killed or the disk is full.

A folder is written beside its place, under a hidden name. When all of it is on the disk, with a checksum for each
file, it is renamed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..allocators import lacking
from ..data.files import real, written
from .disk import sync

LOG = logging.getLogger("errornorm")
SUMS = "checksums.json"
DAY = 24 * 3600.0  # seconds

_STEP = re.compile(r"(?:\.old-)?step-(\d{8,})(?:~.*)?")
_HIDDEN = re.compile(r"\.(stage|old|trash)-(.+)~(.*)~(\d{1,9})~[0-9a-f]+")

_live: set[str] = set()  # stages of this process
_verdicts: dict[tuple[str, int, int], str | None] = {}  # so that `rotate` hashes nothing twice


def name(step: int) -> str:
    """
    >>> name(200)
    'step-00000200'
    """
    return f"step-{step:08d}"


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its name."""
    match = _STEP.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} is no checkpoint: its name should be such as {name(200)}")
    return int(match[1])


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A new folder to write into. It becomes `folder` at the end; after an error nothing is left of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = _beside(folder, "stage")
    _live.add(stage.name)
    try:
        stage.mkdir()
        yield stage
        publish(stage, folder)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    finally:
        _live.discard(stage.name)


def publish(stage: Path, final: Path) -> None:
    """Rename a folder, once all of it is on the disk. What was there before stays until the moment of the renaming."""
    _seal(stage)
    old = _place(stage, final)
    sync(final.parent)
    _verdicts[_identity(final)] = None
    if old is not None:
        _remove(old)


def verify(folder: Path) -> str | None:
    """Why a folder cannot be used; None if it is complete and every checksum holds."""
    try:
        identity = _identity(folder)
    except OSError:
        return f"no {SUMS}"
    try:
        sums = json.loads((folder / SUMS).read_bytes())
        listed = [(str(key), int(entry["bytes"]), str(entry["sha256"])) for key, entry in sums.items()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if lacking(error):
            raise
        return f"{SUMS} cannot be read"
    try:
        # Sizes first: most damage is seen without reading gigabytes.
        reasons = (check(folder, *entry) for check in (_sized, _hashed) for entry in listed)
        _verdicts[identity] = next(filter(None, reasons), None)
    except OSError as error:
        if lacking(error):
            raise
        return f"{error.strerror}: {error.filename}"
    return _verdicts[identity]


def newest(parent: Path) -> Path | None:
    """The newest complete checkpoint. Others that are newer stay as they are, and a warning names them."""
    for folder in _steps(parent):
        reason = verify(folder)
        if reason is None:
            return folder
        LOG.warning("checkpoint %s cannot be used (%s): looking for an older one", folder, reason)
    return None


def rotate(parent: Path, keep: int, best: int | None = None) -> None:
    """Remove all complete checkpoints but the newest ones.

    Args:
        parent: The folder of the checkpoints.
        keep: How many stay.
        best: The step of one more that stays.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}, but at least one checkpoint has to stay")
    sweep(parent)
    whole = [folder for folder in _steps(parent) if not folder.name.startswith(".") and _known(folder) is None]
    for folder in whole[keep:]:
        if step_of(folder) != best:
            trash = _beside(folder, "trash")
            try:
                folder.rename(trash)
                sync(parent)
            except OSError as error:
                LOG.warning("checkpoint %s could not be removed (%s)", folder, error.strerror)
                continue
            _remove(trash)


def sweep(parent: Path) -> None:
    """Remove what processes that are dead by now left half written or half removed."""
    for path in sorted(parent.glob(".*~*")):
        match = _HIDDEN.fullmatch(path.name)
        if match is None or _in_use(path, match[3], int(match[4])):
            continue
        final = parent / match[2]
        if match[1] == "old" and not final.exists() and verify(path) is None:
            path.rename(final)  # the process died between two renamings
            sync(parent)
        else:
            _remove(path)


def _beside(folder: Path, kind: str) -> Path:
    """A hidden name on the same file system, that tells whose it is."""
    return folder.with_name(f".{kind}-{folder.name}~{platform.node()}~{os.getpid()}~{secrets.token_hex(4)}")


def _seal(stage: Path) -> None:
    (stage / SUMS).unlink(missing_ok=True)
    sums: dict[str, dict[str, Any]] = {}
    folders = []
    for path in sorted(stage.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            folders.append(path)
        elif path.is_file() and not path.is_symlink():
            path.chmod(stage.stat().st_mode & 0o666)  # safetensors writes for the owner alone
            sums[path.relative_to(stage).as_posix()] = _sealed(path)
        else:
            raise ValueError(f"{path} is a link or a device: a checkpoint holds plain files")
    if not sums:
        raise ValueError(f"nothing was written into {stage}")
    for folder in folders:
        sync(folder)
    with written(stage / SUMS) as file:
        json.dump(sums, file, indent=1)
    sync(stage)


def _sealed(path: Path) -> dict[str, Any]:
    # Windows brings only files to the disk that are open for writing.
    with path.open("rb") if os.name == "posix" else path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return {"sha256": digest, "bytes": file.tell()}


def _place(stage: Path, final: Path) -> Path | None:
    """Give the stage its name; say where that is which had it."""
    if not os.path.lexists(final):
        stage.rename(final)
        return None
    if _exchange(stage, final):
        return stage
    # Two renamings: `newest` and `sweep` look for the old one too.
    old = _beside(final, "old")
    final.rename(old)
    try:
        stage.rename(final)
    except BaseException:
        old.rename(final)
        raise
    return old


def _exchange(left: Path, right: Path) -> bool:
    """Swap two names in one step, where the system and the file system can: most of Linux."""
    if sys.platform != "linux":
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    try:
        call = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return bool(call(here, os.fsencode(left), here, os.fsencode(right), swap) == 0)


def _sized(folder: Path, key: str, size: int, digest: str) -> str | None:
    if not real(folder / key).is_relative_to(real(folder)):
        return f"a file outside of it: {key}"
    try:
        if not stat.S_ISREG((folder / key).stat().st_mode):
            return f"no plain file: {key}"
        found = (folder / key).stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return f"missing file {key}"
    if found == size:
        return None
    return f"{found - size} extra bytes in {key}" if found > size else f"{size - found} bytes missing in {key}"


def _hashed(folder: Path, key: str, size: int, digest: str) -> str | None:
    with (folder / key).open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == digest
    return None if same else f"checksum differs: {key}"


def _identity(folder: Path) -> tuple[str, int, int]:
    sums = (folder / SUMS).stat()
    return str(folder.absolute()), sums.st_ino, sums.st_mtime_ns


def _known(folder: Path) -> str | None:
    """As `verify`, but each folder is read only once in a process."""
    try:
        return _verdicts[_identity(folder)]
    except (OSError, KeyError):
        return verify(folder)


def _steps(parent: Path) -> list[Path]:
    """Checkpoints, the newest first; of equal steps the hidden ones last."""
    found = [path for path in parent.glob("*") if _STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: (step_of(path), path.name), reverse=True)


def _in_use(path: Path, host: str, pid: int) -> bool:
    if path.name in _live:
        return True
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            return False
    if host != platform.node() or os.name != "posix":
        return True  # nobody here can know
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove(path: Path) -> None:
    """Remove what has a hidden name by now. What cannot be removed is no reason to stop."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        LOG.warning("%s could not be removed (%s)", path, error.strerror)
