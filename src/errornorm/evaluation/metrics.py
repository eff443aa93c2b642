"""Scores of generated texts, each with the settings that made it. Nothing is rounded.

BLEU, chrF and ROUGE go from 0 to 100; `copies` is a share from 0 to 1.
"""

from __future__ import annotations

import importlib.metadata
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import flores

NAMES = ("bleu", "chrf", "rouge", "copies")
ROUGES = ("rouge1", "rouge2", "rougeLsum")
VALUES = ("bleu", "chrf", *ROUGES, "copies")  # what is measured under these names
TOKENIZERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none", "flores200")
COPIED = 0.8
COPIES = f"words:casefold+nfkc|match:lcs|of:longer|min:{COPIED}|version:1"

# A word is a run of letters and digits; a character of Chinese or Japanese is a word of its own.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_SENTENCE_END = re.compile(r"([.!?…][\"'”’»)\]]*)\s+")
_MISSING = "evaluation needs more packages: pip install errornorm[train]"


@dataclass(frozen=True, slots=True)
class Score:
    value: float
    signature: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """What each sentence adds to the score of a corpus: a row of numbers, and the score of summed rows."""

    rows: Sequence[Sequence[float]]
    score: Callable[[Any], float]


def bleu(
    outputs: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    flores_model: Path | None = None,
) -> Score:
    """Corpus BLEU of sacrebleu. `flores200` without `flores_model` falls back to 13a, with a notice."""
    _check(outputs, references=references)
    metric = _bleu(tokenize, flores_model)
    return Score(metric.corpus_score(outputs, [references]).score, str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 of sacrebleu."""
    _check(outputs, references=references)
    metric = _chrf()
    return Score(metric.corpus_score(outputs, [references]).score, str(metric.get_signature()))


def rouge(outputs: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """The mean F-measure of rouge1, rouge2 and rougeLsum, with stemming, times 100.

    The tokenizer of rouge-score knows a to z and digits only: a text in another script has a score of 0.
    """
    sentences = _rouges(outputs, references)
    return {name: Score(sum(values) / len(values), _rouge_signature(name)) for name, values in sentences.items()}


def copies(output: str, source: str) -> bool:
    """Whether an output is its source: at least 80 % of the longer one's words are in both, in order.

    Case, white space and punctuation do not count. An output without words is no copy.

    >>> copies("The house, he said, is GREEN .", "the house he said is green")
    True
    >>> copies("Das Haus ist green.", "The house is green.")
    False
    """
    a, b = _words(output), _words(source)
    if a == b:
        return bool(a)
    longest = max(len(a), len(b))
    if min(len(a), len(b)) / longest < COPIED:
        return False
    return _common(a, b) / longest >= COPIED


def share_of_copies(outputs: Sequence[str], sources: Sequence[str]) -> float:
    """From 0 to 1. See `copies`."""
    _check(outputs, sources=sources)
    return sum(map(copies, outputs, sources)) / len(outputs)


def measure(
    names: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    tokenize: str = "13a",
    flores_model: Path | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """Values and signatures by name.

    Args:
        names: Of "bleu", "chrf", "rouge" (which gives rouge1, rouge2 and rougeLsum) and "copies".
        outputs: What the model wrote.
        references: What it should have written.
        sources: What it read; for "copies".
        tokenize: Of BLEU: one of `TOKENIZERS`.
        flores_model: The file that "flores200" needs.
    """
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"unknown metric {unknown[0]!r}; there are {', '.join(NAMES)}")
    _check(outputs, references=references, sources=sources)
    scores: dict[str, Score] = {}
    for name in NAMES:
        if name not in names:
            continue
        if name == "bleu":
            scores[name] = bleu(outputs, references, tokenize, flores_model)
        elif name == "chrf":
            scores[name] = chrf(outputs, references)
        elif name == "rouge":
            scores |= rouge(outputs, references)
        else:
            scores[name] = Score(share_of_copies(outputs, sources), COPIES)
    return {n: score.value for n, score in scores.items()}, {n: score.signature for n, score in scores.items()}


def statistics(
    names: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    tokenize: str = "13a",
    flores_model: Path | None = None,
) -> dict[str, Statistics]:
    """The same measures sentence by sentence, for resampling. Names: of `VALUES`."""
    _check(outputs, references=references, sources=sources)
    found: dict[str, Statistics] = {}
    if "bleu" in names:
        found["bleu"] = _summed(_bleu(tokenize, flores_model, force=True), outputs, references)
    if "chrf" in names:
        found["chrf"] = _summed(_chrf(), outputs, references)
    if any(name in names for name in ROUGES):
        found |= {name: _averaged(values) for name, values in _rouges(outputs, references).items() if name in names}
    if "copies" in names:
        found["copies"] = _averaged([float(copies(o, s)) for o, s in zip(outputs, sources, strict=True)])
    return found


def _summed(metric: Any, outputs: Sequence[str], references: Sequence[str]) -> Statistics:
    rows = metric._extract_corpus_statistics(outputs, [references])
    return Statistics(rows, lambda sums: float(metric._compute_score_from_stats(list(sums)).score))


def _averaged(values: Sequence[float]) -> Statistics:
    return Statistics([(value, 1.0) for value in values], lambda sums: float(sums[0] / sums[1]))


def _check(outputs: Sequence[str], **others: Sequence[str]) -> None:
    for name, texts in others.items():
        if len(texts) != len(outputs):
            raise ValueError(f"{len(outputs)} outputs and {len(texts)} {name}: give one for each")
    if not outputs:
        raise ValueError("0 outputs: there is nothing to measure")


def require_tokenizer(tokenize: str, flores_model: Path | None = None) -> None:
    """Refuse a tokenizer of BLEU whose packages or file are not there."""
    _bleu(tokenize, flores_model)


def _bleu(tokenize: str, flores_model: Path | None, force: bool = False) -> Any:
    """force: no advice of sacrebleu about texts that look tokenized."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise ImportError(_MISSING) from error
    if tokenize not in TOKENIZERS:  # sacrebleu has some more, which it downloads without a check
        raise ValueError(f"unknown tokenizer {tokenize!r}; there are {', '.join(TOKENIZERS)}")
    if tokenize == "flores200" and flores_model is None:
        flores.say_fallback()
        tokenize = "13a"
    if tokenize != "flores200":
        try:
            return BLEU(tokenize=tokenize, force=force)
        except RuntimeError as error:  # sacrebleu's way to say that MeCab is not there
            raise ImportError(f"the tokenizer {tokenize} needs more: pip install sacrebleu[{tokenize[:2]}]") from error
    assert flores_model is not None
    metric: Any = BLEU(tokenize="none", force=force)
    metric.tokenizer = flores.loaded(flores_model)
    metric.tokenizer_signature = metric.tokenizer.signature()
    return metric


def _chrf() -> Any:
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise ImportError(_MISSING) from error
    return CHRF()


def _rouges(outputs: Sequence[str], references: Sequence[str]) -> dict[str, list[float]]:
    _check(outputs, references=references)
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise ImportError(_MISSING) from error
    scorer = RougeScorer(ROUGES, use_stemmer=True)
    found: dict[str, list[float]] = {name: [] for name in ROUGES}
    for output, reference in zip(outputs, references, strict=True):
        scores = scorer.score(_by_line(reference), _by_line(output))
        for name, values in found.items():
            values.append(100 * scores[name].fmeasure)
    return found


def _rouge_signature(name: str) -> str:
    sentences = "|sentences:punctuation" if name == "rougeLsum" else ""
    version = importlib.metadata.version("rouge-score")
    return f"nrefs:1|case:lc|stem:porter|measure:f1|mean:sentences{sentences}|version:rouge-score-{version}"


def _by_line(text: str) -> str:
    """A sentence on each line, which is what rougeLsum reads."""
    return _SENTENCE_END.sub(r"\1\n", text)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence: a column of the table at a time, as the bits of one number."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    every = (1 << len(a)) - 1
    column = every  # a zero: here the length grows by one
    for word in b:
        hits = column & places.get(word, 0)
        column = ((column + hits) | (column - hits)) & every
    return len(a) - column.bit_count()
