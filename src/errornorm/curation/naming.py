"""Names for what `errornorm prune` keeps, in commands that people copy."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ..data.lines import PACKED

ENDINGS = {"tsv": ".tsv", "text": ".txt", "parquet": ".parquet"}  # of all other forms: .jsonl


def output_options(corpus: Mapping[str, Any]) -> str:
    """Options with names that fit the form of a corpus, as a table's meta data describe it.

    >>> output_options({"format": "text"})
    '-o clean.txt'
    >>> output_options({"format": "pairs", "path": "train.en", "pair": "train.fr.gz"})
    '-o clean.en --output-pair clean.fr'
    """
    form = str(corpus.get("format"))
    if not corpus.get("pair"):
        return f"-o clean{ENDINGS.get(form, '.jsonl')}"
    sides = [PurePath(str(corpus.get(side) or "")) for side in ("path", "pair")]
    first, second = (PurePath(side.stem).suffix if side.suffix in PACKED else side.suffix
                     for side in sides)  # fmt: skip
    if first == second:
        first, second = f".source{first}", f".target{second}"
    return f"-o {shlex.quote('clean' + first)} --output-pair {shlex.quote('clean' + second)}"
