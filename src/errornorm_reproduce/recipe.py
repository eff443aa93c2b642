"""What a recipe of files is asked for, and what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errornorm.data.lines import DataError

Example = dict[str, Any]
Splits = dict[str, Iterable[Example]]
DIRECTION = "languages"  # of an example of several directions


@dataclass(frozen=True)
class Asked:
    """A recipe's entries, and where local data are."""

    entries: Mapping[str, Any]
    data: Path | None

    def __getitem__(self, name: str) -> Any:
        return self.entries[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.entries.get(name, default)

    def file(self, name: str) -> Path:
        if self.data is None:
            raise ValueError("this scale needs local data: give their folder with --data")
        if not (path := self.data / name).is_file():
            raise DataError(f"{path}: no such file; --data must be the folder that has it")
        return path
