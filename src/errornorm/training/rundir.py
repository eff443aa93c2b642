"""The folder of a run: what lies where, who may write, and files that are never half written."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .._version import __version__
from ..data.files import written
from ..evaluation.runs import EVALUATION, MANIFEST, METRICS, OUTPUTS
from . import rows
from .checkpoints import sweep
from .disk import sync
from .locks import Lock
from .rows import read_rows as read_rows

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "sacrebleu", "numpy")

_PART = re.compile(r"\..+\.\d+\.part")  # of `written`
_OURS = re.compile(r"\.lock(\.json)?|\.(stage|old|trash)-.+|seed-\d+|\.DS_Store|lost\+found|" + _PART.pattern)


@dataclass(frozen=True, slots=True)
class RunDir:
    """The folder of a run.

    Args:
        path: The folder.
        main: Whether this process is the one that writes. Others may call everything, but only read.
    """

    path: Path
    main: bool = True

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def timing(self) -> Path:
        return self.path / "timing.jsonl"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    def outputs(self, split: str) -> Path:
        return self.path / OUTPUTS.format(split)

    @property
    def evaluation(self) -> Path:
        return self.path / EVALUATION

    @property
    def curves(self) -> Path:
        return self.path / "curves.png"

    @property
    def lock(self) -> Path:
        return Lock(self.path).file

    @property
    def has_run(self) -> bool:
        """Whether a run began here. A configuration alone may be the user's own."""
        return self.config.is_file() and any(p.exists() for p in (self.lock, self.manifest, self.checkpoints))

    @contextmanager
    def begun(self, resume: bool) -> Iterator[None]:
        """Check the folder, lock it and prepare it: nothing is created if it is refused."""
        self.check(resume)
        new = self.main and not self.path.exists()
        with self.locked():
            try:
                self.prepare(resume)
                yield
            finally:
                if new and not self.config.exists():
                    self._vanish()

    def check(self, resume: bool) -> None:
        """Refuse a folder that is not fit for a new run, or has none to go on with. Writes nothing."""
        if not self.main:
            return
        seeds = [folder.name for folder in sorted(self.path.glob("seed-*")) if RunDir(folder).has_run]
        if seeds and not self.has_run:
            some = ", ".join(seeds[:3]) + (", ..." if seeds[3:] else "")
            raise ValueError(
                f"{self.path} has runs of several seeds ({some}): name them in seeds, or choose another output"
            )
        if resume:
            if not self.has_run:
                raise ValueError(f"{self.path} has no run to go on with: check the name, or leave out --resume")
            self._refuse_links()
        elif self.has_run:
            raise ValueError(f"{self.path} has a run already: --resume goes on with it, or choose another output")
        else:
            self._only_ours()

    def prepare(self, resume: bool) -> None:
        """Check, make the folder, and remove what a killed process left. Call it with the lock.

        Write `config` next: it marks the folder as a run.
        """
        if not self.main:
            return
        self.check(resume)
        self.path.mkdir(parents=True, exist_ok=True)
        sweep(self.path)
        sweep(self.checkpoints)
        for path in self.path.glob(".*.part"):
            if _PART.fullmatch(path.name):
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out. The lock of a process that was killed is free again."""
        if not self.main:
            yield
            return
        if not self.has_run:
            self._only_ours()
        self.path.mkdir(parents=True, exist_ok=True)
        with Lock(self.path).held():
            yield

    def require_free(self) -> None:
        """Refuse a folder that another process has at this moment. Writes nothing."""
        Lock(self.path).require_free()

    def write_json(self, path: Path, value: Any) -> None:
        """A JSON file, completely or not at all. See `rows.strict` for numbers that JSON does not have."""
        self.write_text(path, rows.dumps(value, indent=2) + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """A text file, completely or not at all."""
        if self.main:
            with written(path) as file:
                file.write(text)
            sync(path.parent)

    def append(self, path: Path, row: Mapping[str, Any]) -> None:
        """Add a row to a JSONL file. See `rows.strict` for numbers that JSON does not have."""
        if self.main:
            rows.append(path, row)

    def sync_rows(self) -> None:
        """Bring metrics and timing to the disk. Call it before a checkpoint that follows them."""
        for path in (self.metrics, self.timing):
            if self.main and path.exists():
                with path.open("r+b") as file:
                    os.fsync(file.fileno())

    def truncate_rows(self, path: Path, step: int) -> None:
        """Keep the rows up to a step, so that after a resume each step is there once."""
        if self.main and path.exists():
            rows.truncate(path, step)

    def _vanish(self) -> None:
        """A folder in which no run began. The lock is still held: who wants it now is told so, and does not wait."""
        with suppress(OSError):  # there is something of someone else's
            self.lock.unlink(missing_ok=True)
            Lock(self.path).owner.unlink(missing_ok=True)
            self.path.rmdir()

    def _refuse_links(self) -> None:
        """Rows are added to these files: a link would lead them into another one."""
        for path in (self.metrics, self.timing):
            if path.is_symlink():
                raise ValueError(f"{path} is a link: put the file in its place, or choose another output")

    def _only_ours(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file: choose another output")
        others = sorted(p.name for p in self.path.glob("*") if not _OURS.fullmatch(p.name))
        if others:
            some = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise ValueError(f"{self.path} has other files ({some}): choose a new or an empty folder as output")


def versions() -> dict[str, str]:
    """What a result may depend on; packages that are not installed are left out."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def data_hash(data: Sequence[Mapping[str, Any]]) -> str:
    """One hash for all data of a run: equal data have equal hashes, wherever the files lie."""
    entries = [{key: value for key, value in entry.items() if key != "path"} for entry in data]
    return hashlib.sha256(json.dumps(entries, sort_keys=True, allow_nan=False).encode()).hexdigest()


def manifest(
    *,
    command: Sequence[str],
    seed: int,
    method: str,
    objective: str,
    task: str,
    parameters: int,
    data: Sequence[Mapping[str, Any]],
    **more: Any,
) -> dict[str, Any]:
    """What a run was made from."""
    return {
        "errornorm": __version__,
        "versions": versions(),
        "command": list(command),
        "seed": seed,
        "method": method,
        "objective": objective,
        "task": task,
        "parameters": parameters,
        "data": [dict(entry) for entry in data],
        "data_hash": data_hash(data),
        **more,
    }
