"""Paired bootstrap resampling: would a difference stay if the test had drawn other sentences of the same kind?

sacrebleu has such a test for two single systems. It calls two equal systems different (p = 1 / (samples + 1)), its
p-values are about half of two-sided ones, and it knows nothing of seeds. So the resampling is done here; what a
sentence counts and what a corpus scores stay sacrebleu's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .metrics import TOKENIZERS, VALUES, Statistics, statistics
from .runs import Run

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

AT_ONCE = 2**22  # numbers in memory
CLOSE = {"copies": 1e-4}  # how far a score may be from the one that a run states; of the others, 0.01


@dataclass(frozen=True, slots=True)
class Resampled:
    """The score of all sentences, and scores of resamples."""

    value: float
    scores: NDArray[float64]


class Resampler:
    """Resampled scores of runs, each computed once; `notes` say what could not be."""

    def __init__(self, samples: int, seed: int, flores_model: Path | None = None) -> None:
        self.notes: list[str] = []
        self._samples, self._seed, self._flores_model = samples, seed, flores_model
        self._done: dict[Path, dict[str, Resampled]] = {}

    def scores(self, run: Run) -> dict[str, Resampled]:
        """By the name of the measure, if it is one of sentences and the outputs give what the run states."""
        if run.folder not in self._done:
            self._done[run.folder] = {
                name: Resampled(value(sentences), resampled(sentences, self._samples, self._seed))
                for name, sentences in self._statistics(run).items()
                if self._as_stated(run, name, sentences)
            }
        return self._done[run.folder]

    def _statistics(self, run: Run) -> dict[str, Statistics]:
        names, texts = [name for name in run.values if name in VALUES], run.texts
        if not names or texts is None or not texts.outputs:
            if names:
                self.notes.append(f"{run.folder}: no outputs, so no p-value for {', '.join(names)}")
            return {}
        if len(texts.outputs) < 2:  # every resample would be the same
            self.notes.append(f"{run.folder}: a single sentence, so no p-value")
            return {}
        tokenize = "13a"
        if "bleu" in names:
            found = re.search(r"\btok:([^|]+)", run.signatures.get("bleu", ""))
            tokenize = found[1] if found else tokenize
            if tokenize not in TOKENIZERS or (tokenize == "flores200" and self._flores_model is None):
                self.notes.append(f"{run.folder}: no p-value for bleu: it needs the model of its tokenizer {tokenize}")
                names.remove("bleu")
                tokenize = "13a"
        parts = [
            statistics(names, outputs, references, sources, tokenize, self._flores_model)
            for outputs, references, sources in _by_set(texts.sets, texts.outputs, texts.references, texts.sources)
        ]
        return {name: joined([part[name] for part in parts]) for name in parts[0]}

    def _as_stated(self, run: Run, name: str, sentences: Statistics) -> bool:
        found, stated = value(sentences), run.values[name]
        close = abs(found - stated) <= CLOSE.get(name, 0.01)
        if not close:
            self.notes.append(
                f"{run.folder}: no p-value for {name}: the outputs give {found:.4g}, the evaluation states "
                f"{stated:.4g}; evaluate again"
            )
        return close


def joined(parts: Sequence[Statistics]) -> Statistics:
    """Of several test sets, whose mean is the score: each has columns of its own."""
    if len(parts) == 1:
        return parts[0]
    width = len(parts[0].rows[0])
    places = [slice(i * width, (i + 1) * width) for i in range(len(parts))]
    rows = []
    for part, place in zip(parts, places, strict=True):
        for row in part.rows:
            rows.append([0.0] * (width * len(parts)))
            rows[-1][place] = row

    def score(sums: Any) -> float:
        # A small set may have no sentence in a resample.
        found = [p.score(sums[place]) for p, place in zip(parts, places, strict=True) if any(sums[place])]
        return sum(found) / max(1, len(found))

    return Statistics(rows, score)


def _by_set(sets: Sequence[str], *columns: Sequence[str]) -> list[list[list[str]]]:
    return [
        [[text for text, name in zip(column, sets, strict=True) if name == one] for column in columns]
        for one in dict.fromkeys(sets)
    ]


def value(sentences: Statistics) -> float:
    """The score of all sentences."""
    return sentences.score([sum(column) for column in zip(*sentences.rows, strict=True)])


def resampled(sentences: Statistics, samples: int, seed: int) -> NDArray[float64]:
    """Scores of as many corpora, each of as many sentences drawn with replacement.

    Equal seeds draw equal sentences from tests of equal length, so that two systems can be paired.
    """
    numpy = _numpy()
    rows = numpy.asarray(sentences.rows, dtype=numpy.float64)
    num, random = len(rows), numpy.random.default_rng(seed)
    scores: list[float] = []
    while len(scores) < samples:
        lot = min(max(1, AT_ONCE // num), samples - len(scores))
        drawn = random.integers(num, size=(lot, num)) + num * numpy.arange(lot)[:, None]
        times = numpy.bincount(drawn.ravel(), minlength=lot * num).reshape(lot, num)
        scores += map(sentences.score, (times @ rows).tolist())
    return numpy.asarray(scores)  # type: ignore[no-any-return]


def p_value(difference: float, differences: NDArray[float64]) -> float:
    """How often chance alone makes a difference at least as large, in either direction.

    p = (1 + #{|d* - d| >= |d|}) / (1 + samples), for the difference d and its resamples d*: these scatter about d as d
    would scatter about 0 if both systems were equally good.
    """
    numpy = _numpy()
    # A tie stays a tie when the last bit says otherwise.
    as_large = numpy.abs(differences - difference) >= abs(difference) * (1 - 1e-9)
    return (1 + int(as_large.sum())) / (1 + len(differences))


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError("comparison needs more packages: pip install errornorm[train]") from error
    return numpy
