"""From a corpus to JSONL with noise on purpose, without losing a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .files import real, require_place, written
from .lines import NOT_UNPACKED, PACKED, DataError
from .noise import BILINGUAL, check, corrupt
from .quarantine import Quarantine
from .records import Corpus, Record
from .values import as_line


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
            file.write(as_line(example))
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
