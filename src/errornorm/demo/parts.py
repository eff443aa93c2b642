"""What a page is made of, as plain numbers and texts, and the checks of them.

Shares lie between 0 and 1, BLEU between 0 and 100, error norms between 0 and √2.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields
from typing import Literal

Verdict = Literal["correct", "copy", "wrong", "other"]  # other: not a copy, and nothing decides whether it is right
Noise = Literal["clean", "untranslated"]

LARGEST_NORM = math.sqrt(2)
MAX_METHODS = 12
SLACK = 1e-3  # of arithmetic in single precision


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one method."""

    method: str
    spec: str
    correct_greedy: float | None  # None: nothing decides which translations are right
    correct_beam: float | None
    bleu_greedy: float
    bleu_beam: float
    copies_greedy: float
    copies_beam: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What training looked like, by step. Numbers that are not finite are left out."""

    method: str
    steps: list[int]
    nll: list[float]
    kept: list[float]
    top_norm: list[float]


@dataclass(frozen=True, slots=True)
class Sample:
    """A sentence, and what each method made of it with beam search."""

    source: str
    reference: str
    outputs: dict[str, str]
    verdicts: dict[str, Verdict]


@dataclass(frozen=True, slots=True)
class Token:
    """A target token in training."""

    text: str
    norm: float
    nll: float
    dropped: bool
    best: str  # what the model would have said
    noisy: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """An example from the training data."""

    source: str
    tokens: list[Token]
    noise: Noise


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows. The setting "BLEU signature" also stands below the results.

    Args:
        settings: Name and value, in the order shown.
        command: The command line that made the page.
        seconds: That it took, with everything.
    """

    title: str
    rows: list[Row]
    curves: list[Curve]
    samples: list[Sample]
    sentences: list[Sentence]
    settings: dict[str, str]
    command: str
    seconds: float

    @property
    def judged(self) -> bool:
        """Whether something decides which translations are right."""
        return self.rows[0].correct_beam is not None


def check(page: Page) -> None:
    """Refuse what would make a page that is wrong or empty."""
    if not 0 < len(page.rows) <= MAX_METHODS:
        raise ValueError(f"a page of {len(page.rows)} methods: give 1 to {MAX_METHODS} rows")
    names = [row.method for row in page.rows]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"two rows for {twice[0]!r}: give each method one name of its own")
    for row in page.rows:
        _check_row(row, page.judged)
    for curve in page.curves:
        if lengths := {len(curve.nll), len(curve.kept), len(curve.top_norm)} - {len(curve.steps)}:
            raise ValueError(f"curve of {curve.method!r}: {len(curve.steps)} steps but {lengths.pop()} values")
    for sample in page.samples:
        if sample.outputs.keys() != sample.verdicts.keys():
            raise ValueError(f"sample {sample.source[:40]!r}: outputs and verdicts are not of the same methods")
    named = {curve.method for curve in page.curves} | {name for sample in page.samples for name in sample.outputs}
    if strangers := named - {*names}:
        raise ValueError(f"no row for the method {min(strangers)!r}; there are {', '.join(names)}")
    for token in (token for sentence in page.sentences for token in sentence.tokens):
        if not -SLACK <= token.norm <= LARGEST_NORM + SLACK or not math.isfinite(token.nll):
            raise ValueError(f"token {token.text[:40]!r}: no error norm is {token.norm} or no loss {token.nll}")


def _check_row(row: Row, judged: bool) -> None:
    for entry in fields(row):
        value = getattr(row, entry.name)
        if entry.name.startswith("correct") and (value is not None) != judged:
            raise ValueError(f"{row.method}: {entry.name}={value}, unlike other rows: judge all methods or none")
        if isinstance(value, str) or value is None:
            continue
        largest = {"bleu": 100 + SLACK, "seconds": math.inf}.get(entry.name.partition("_")[0], 1.0)
        if not (0 <= value <= largest and math.isfinite(value)):
            raise ValueError(f"{row.method}: {entry.name}={value} is not between 0 and {largest:.3g}")
