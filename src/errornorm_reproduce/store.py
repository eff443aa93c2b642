"""Results: one JSON file for each cell, written when it is done, never changed."""

from __future__ import annotations

import base64
import json
import platform
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from errornorm._version import __version__
from errornorm.data.files import written
from errornorm.data.lines import DataError
from errornorm.training.rundir import versions

from .cells import Cell

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """A folder with a folder for each item."""

    folder: Path

    def path(self, cell: Cell) -> Path:
        return self.folder / cell.item / f"{cell.hash}.json"

    def failure(self, cell: Cell) -> Path:
        return self.folder / cell.item / f"{cell.hash}.failed.json"

    def find(self, cell: Cell) -> Row | None:
        """The row of a cell, from whichever item ran it."""
        for path in (self.path(cell), *sorted(self.folder.glob(f"*/{cell.hash}.json"))):
            if path.is_file():
                return _read(path)
        return None

    def failed(self, cell: Cell) -> Row | None:
        path = self.failure(cell)
        return _read(path) if path.is_file() else None

    def write(self, cell: Cell, found: Mapping[str, Any], seconds: float | None, threads: int) -> Row:
        row = {
            "hash": cell.hash,
            "method": cell.row,
            **cell.facts,
            **found,
            "seconds": seconds,
            "threads": threads,
            "machine": machine(),
            "date": datetime.now(UTC).date().isoformat(),
            "errornorm": __version__,
            "versions": {name: text for name, text in versions().items() if name != "platform"},
        }
        _write(self.path(cell), row)
        self.failure(cell).unlink(missing_ok=True)
        return row

    def write_failure(self, cell: Cell, kind: str, text: str, trace: str = "") -> None:
        _write(self.failure(cell), {"hash": cell.hash, **cell.facts, "error": kind, "text": text, "trace": trace})


def machine() -> dict[str, Any]:
    """Enough to know whether two times can be compared."""
    import torch

    found: dict[str, Any] = {"system": platform.system(), "processor": _processor()}
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "gpus": torch.cuda.device_count()}
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def packed(rows: Sequence[Sequence[float]]) -> str:
    """What each sentence adds to a score, short enough for a file in a repository; no text is in it."""
    text = json.dumps([[int(n) if float(n).is_integer() else round(float(n), 6) for n in row] for row in rows])
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> list[list[float]]:
    rows: list[list[float]] = json.loads(zlib.decompress(base64.b85decode(text)))
    return rows


def present(store: Store, cells: Iterable[Cell]) -> list[tuple[Cell, Row]]:
    """The cells that have a row, with it."""
    found = ((cell, store.find(cell)) for cell in cells)
    return [(cell, row) for cell, row in found if row is not None]


def _read(path: Path) -> Row:
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}); remove it, and run the item again") from error
    if not isinstance(row, dict):
        raise DataError(f"{path}: not a row; remove it, and run the item again")
    return row


def _write(path: Path, row: Mapping[str, Any]) -> None:
    with written(path) as file:
        file.write(json.dumps(row, indent=1, ensure_ascii=False) + "\n")
