"""From file to file, without losing a line: what goes in is used or quarantined, and the counts say so."""

from __future__ import annotations

import errno
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from .lines import NOT_UNPACKED, PACKED, DataError, Problem
from .noise import BILINGUAL, check, corrupt
from .records import Corpus, Record
from .values import finite

FULL = {errno.ENOSPC, errno.EDQUOT}
LIMITS = FULL | {errno.EFBIG}  # no more can be written; such an error does not say where


@dataclass(slots=True)
class Quarantine:
    """Lines that could not be used, and how many could."""

    path: Path
    used: int = 0
    problems: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def records(self) -> int:
        return self.used + self.problems

    def filter(self, items: Iterable[Record | Problem]) -> Iterator[Record]:
        """The records; the problems go to the file, which is there only if there were any."""
        with written(self.path) as file:
            for item in items:
                if isinstance(item, Record):
                    self.used += 1
                    yield item
                    continue
                self.problems += 1
                self.reasons[item.reason.partition(" (")[0]] += 1
                row = {"where": str(item.where), "reason": item.reason, "text": item.raw.decode("utf-8", "replace")}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not self.problems:
            self.path.unlink()


@dataclass(frozen=True, slots=True)
class Corrupted:
    """What `corrupt_file` did. `records` = `used` + `quarantined`; `written` is the sum of `noise`."""

    output: str
    records: int
    used: int
    quarantined: int
    written: int
    noise: dict[str, int]
    reasons: dict[str, int]
    quarantine: str | None


def real(path: Path) -> Path:
    """Where a name leads; of links in a circle, one of them (`Path.resolve` would raise an error for those)."""
    return Path(os.path.realpath(path))


def require_place(output: Path, *inputs: Path | None) -> None:
    """Refuse a name that no file can have, or that of what is read."""
    if output.is_dir():
        raise ValueError(f"{output} is a folder: choose another name for the output")
    if output.exists() and not output.is_file():
        raise ValueError(f"{output} is a device or a pipe: choose another name for the output")
    if real(output).is_symlink():
        raise ValueError(f"{output} is a link that leads to itself: choose another name for the output")
    if real(output) in {real(path) for path in inputs if path}:
        raise ValueError(f"{output} is also the input: choose another name for the output")


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
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        if error.filename is None and error.errno in LIMITS:
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def corrupt_file(
    corpus: Corpus,
    output: Path,
    noises: Mapping[str, float],
    *,
    mode: Literal["add", "replace"] = "add",
    seed: int = 0,
    source: str = "source",
    target: str = "target",
    foreign: Path | None = None,
) -> Corrupted:
    """Read a corpus, add noise, and write JSONL with the truth about it. See `corrupt`."""
    quarantine = Quarantine(output.with_name(output.name + ".quarantine.jsonl"))
    for path in (output, quarantine.path):
        require_place(path, corpus.path, corpus.pair, foreign)
    if output.suffix.lower() in (*PACKED, *NOT_UNPACKED):
        raise ValueError(f"{output}: the output is a plain JSONL file: choose another name")
    if (said := Corpus(output).format) != "jsonl":
        raise ValueError(f"{output} has the name of {said}, and the output is jsonl: choose a name such as noisy.jsonl")
    check(noises, mode, [""] if foreign else [])
    both = BILINGUAL & noises.keys()
    needs = [source, target] if both else [target]
    if both and corpus.format == "text":
        why = f"one text file has no sources, and {min(both)} needs them"
        raise DataError(f"{corpus.path}: {why}: give both sides, or JSONL or TSV")
    corpus = replace(corpus, needs=needs)
    others = [line.text(target) for line in Corpus(foreign, form="text", needs=[target], columns=[target])
              if isinstance(line, Record)] if foreign else []  # fmt: skip
    made: Counter[str] = Counter()
    with written(real(output)) as file:
        fields = (record.fields for record in quarantine.filter(corpus))
        for example in corrupt(fields, noises, mode=mode, seed=seed, source=source, target=target, foreign=others):
            made[example["noise"]] += 1
            file.write(json.dumps(finite(example), ensure_ascii=False, default=str) + "\n")
        if not quarantine.used:
            first = next(iter(quarantine.reasons), "it is empty")
            raise DataError(f"{corpus.path}: no record can be used ({first}); check the format and the fields' names")
    return Corrupted(
        output=str(output),
        records=quarantine.records,
        used=quarantine.used,
        quarantined=quarantine.problems,
        written=made.total(),
        noise=dict(made),
        reasons=dict(quarantine.reasons),
        quarantine=str(quarantine.path) if quarantine.problems else None,
    )


def summary(done: Corrupted) -> list[tuple[Any, ...]]:
    """Rows for a table."""
    return [(name, str(num), f"{num / done.written:.1%}") for name, num in sorted(done.noise.items())]
