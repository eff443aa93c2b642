"""Finished runs, read from their directories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data.lines import DataError, Problem, Where, read_lines, reading

MEASURES = ("bleu", "chrf", "rouge1", "rouge2", "rougeLsum", "copies", "perplexity", "nll")
LOWER = ("copies", "perplexity", "nll")  # is better
SPLITS = ("test", "valid", None)  # None: nothing was evaluated
EVALUATION, MANIFEST, METRICS, OUTPUTS = "evaluation.json", "manifest.json", "metrics.jsonl", "outputs-{}.jsonl"


@dataclass(frozen=True)
class Texts:
    """What was read, what should have been written, and what was."""

    sources: list[str]
    references: list[str]
    outputs: list[str]
    sets: list[str]  # which test set a line is from; empty texts if there is one only


@dataclass(frozen=True)
class Run:
    """A run whose evaluation is there."""

    folder: Path
    evaluation: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @property
    def task(self) -> str:
        return str(self.manifest.get("task", "unknown"))

    @property
    def method(self) -> str:
        return str(self._fact("method"))

    @property
    def seed(self) -> int:
        seed = self._fact("seed")
        if not isinstance(seed, int):
            raise DataError(f"{self.folder / EVALUATION}: seed is {seed!r}, not a whole number")
        return seed

    @property
    def data_hash(self) -> str:
        return str(self._fact("data_hash"))

    @property
    def version(self) -> str:
        return str(self._fact("errornorm"))

    @property
    def values(self) -> dict[str, float]:
        found = {name: self.evaluation[name] for name in MEASURES if self.evaluation.get(name) is not None}
        for name, value in found.items():
            if not isinstance(value, int | float):
                raise DataError(f"{self.folder / EVALUATION}: {name} is {value!r}, not a number")
        return {name: float(value) for name, value in found.items()}

    @property
    def training(self) -> Mapping[str, Any]:
        """How the model learned: steps, tokens per step, learning rate."""
        found = self.manifest.get("training")
        return found if isinstance(found, Mapping) else {}

    @property
    def signatures(self) -> dict[str, str]:
        return {name: str(text) for name, text in (self.evaluation.get("signatures") or {}).items()}

    @cached_property
    def texts(self) -> Texts | None:
        """None: the run wrote none, as a language model does not."""
        split = self.evaluation.get("split", "test")
        if split not in SPLITS:  # it becomes the name of a file
            raise DataError(f"{self.folder / EVALUATION}: split is {split!r}, not {' or '.join(SPLITS[:2])}")
        path = self.folder / OUTPUTS.format(split)
        if not path.exists():
            return None
        sides: tuple[list[str], list[str], list[str]] = ([], [], [])
        sets = []
        for where, row in _objects(path):
            for name, side in zip(("source", "reference", "output"), sides, strict=True):
                if not isinstance(row.get(name), str):
                    raise DataError(f"{where}: no text {name!r}; evaluate {self.folder} again")
                side.append(row[name])
            sets.append(str(row.get("set", "")))
        return Texts(*sides, sets)

    def curve(self, split: str, name: str) -> dict[int, float]:
        """A number by step. A step that stands there twice, as after a restart, has its last value."""
        rows = [row for row in self._log if row.get("split") == split and isinstance(row.get("step"), int)]
        return {row["step"]: float(row[name]) for row in rows if isinstance(row.get(name), int | float)}

    @cached_property
    def _log(self) -> list[dict[str, Any]]:
        path = self.folder / METRICS
        return [row for _, row in _objects(path)] if path.exists() else []

    def _fact(self, name: str) -> Any:
        for facts in (self.evaluation, self.manifest):
            if name in facts:
                return facts[name]
        raise DataError(f"{self.folder / EVALUATION}: no {name!r}; evaluate {self.folder} again")


def find(folders: Iterable[Path]) -> tuple[list[Run], list[Path]]:
    """Runs that are finished, and folders that are not. A folder of seed-* runs stands for them; files do not count."""
    runs: list[Run] = []
    unfinished: list[Path] = []
    seen: set[Path] = set()
    for folder in folders:
        if folder.is_file():  # `runs/*` meets those too
            continue
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; give directories that `errornorm train` wrote")
        seeds = sorted((path for path in folder.glob("seed-*") if path.is_dir()), key=_natural)
        own = not seeds or (folder / EVALUATION).exists()
        for path in [*([folder] if own else []), *seeds]:
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            if (path / EVALUATION).exists():
                runs.append(Run(path, facts(path / EVALUATION), facts(path / MANIFEST)))
            else:
                unfinished.append(path)
    return runs, unfinished


def _natural(path: Path) -> tuple[int, str]:
    """seed-10 after seed-9."""
    number = path.name.removeprefix("seed-")
    return (int(number) if number.isdecimal() else 0, number)


def facts(path: Path) -> dict[str, Any]:
    """What one of the two files of a run says."""
    try:
        with reading(path, "the run is not complete"):
            return _object(path.read_text(encoding="utf-8"), path, 1)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8; evaluate the run again") from error


def _objects(path: Path) -> Iterator[tuple[Where, dict[str, Any]]]:
    for line in read_lines(path):
        if isinstance(line, Problem):
            raise DataError(f"{line.where}: {line.reason}")
        if line.text.strip():
            yield line.where, _object(line.text, path, line.where.line)


def _object(text: str, path: Path, line: int) -> dict[str, Any]:
    """From JSON that may have NaN in it: a run can end so."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise DataError(f"{path}:{line}: JSON that is nested too deeply; evaluate the run again") from error
    except json.JSONDecodeError as error:
        where = Where(str(path), line + error.lineno - 1, error.colno)
        raise DataError(f"{where}: not JSON: {error.msg}; evaluate the run again") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}:{line}: a JSON {type(value).__name__}, not an object")
    return value
