"""How much of a corpus is noise, as far as the scores can tell.

What a score cannot see cannot be counted, so several things are looked at, and each may say that it sees nothing:

- **surprising** texts. A model expects to lose as much as its entropy says. On clean text it does, text by text; on
  noise that it has not learned it loses more. With the cube root both are nearly normal (Wilson and Hilferty), so
  s = cbrt(mean loss) - cbrt(mean entropy) is normal for clean text, and a second component far above it is noise.
- **easy** texts. Noise that a model has learned does not surprise it: a copied sentence is certain after its first
  word. Such texts have a low mean loss, and make a second peak below a valley. Boilerplate does the same.
- **uncertain** texts. Noise that it knows, but cannot continue, such as another language: it expects to lose much,
  and does. Such texts have a high mean entropy, and make a second peak above a valley. Lists of names do the same.
- **learnt** noise by its openings: texts that are certain after a disputed opening, beyond what others let expect. It
  is what `ent_auto` looks for. Of learnt noise only a part shows, so it is named, not counted.
- **conflicts** of single words: see `conflicts`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..evaluation.metrics import copies
from ..openings import BINS, EVEN, excess, hardness
from ..scoring.checks import require_numbers
from ..scoring.rank import lists
from ..scoring.table import Scores
from . import conflicts
from .apart import FEWEST, Peak, interval, peak, upper_part
from .conflicts import Threshold
from .mixture import Mixture
from .sums import Estimate, Sums

Floats = NDArray[numpy.float64]
COLUMNS = ["nll_mean", "entropy_mean"]
MOST = 50_000  # texts that are looked at
CLEAR = 0.15  # depth of the valley below uncertain texts; headings made one of 0.08 in WikiText-2
SOME = 0.01  # of the texts, to speak of them
MOSTLY = 0.5
COPY_WORDS = 3  # that a copy has at least
KINDS = ("surprising", "easy", "uncertain")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the texts that lies apart.

    Args:
        share: Of all texts.
        low: Of its 95 % interval, from resampled texts.
        high: Of its 95 % interval.
        tokens: Share of all tokens that are in these texts.
        copies: Share of these texts that repeat their context; None if there is none.
        clear: Distance of the components, or depth of the valley.
    """

    share: float
    low: float
    high: float
    tokens: float
    copies: float | None
    clear: float


@dataclass(frozen=True)
class Views:
    """What is looked at, of each text.

    Args:
        surprise: How much more it loses than expected.
        losses: Cube root of the mean loss.
        entropies: Cube root of the mean entropy.
    """

    surprise: Floats
    losses: Floats
    entropies: Floats

    @staticmethod
    def of(rows: pa.RecordBatch | pa.Table) -> Views:
        loss, entropy = (numpy.asarray(rows[name].to_numpy(zero_copy_only=False), numpy.float64) for name in COLUMNS)
        losses, entropies = numpy.cbrt(loss), numpy.cbrt(numpy.maximum(entropy, 0))
        return Views(losses - entropies, losses, entropies)


@dataclass(frozen=True)
class Split:
    """Where the parts begin; None where there is none."""

    mixture: Mixture | None = None
    easy: Peak | None = None
    uncertain: Peak | None = None

    def chances(self, views: Views) -> dict[str, Floats]:
        """That each text belongs to each part."""
        nothing = numpy.zeros(len(views.surprise))
        up = self.mixture.upper(views.surprise) if self.mixture is not None else nothing
        rest = up < 0.5
        down = (views.losses < self.easy.edge) & rest if self.easy is not None else nothing > 0
        unsure = (views.entropies > self.uncertain.edge) & rest & ~down if self.uncertain is not None else nothing > 0
        return {"surprising": up, "easy": down.astype(numpy.float64), "uncertain": unsure.astype(numpy.float64)}


@dataclass(frozen=True)
class Noise:
    """Args:
    texts: How many were looked at.
    surprising: Texts that the model did not expect; None if none lie apart.
    easy: Texts that it expects too well; None if none lie apart.
    uncertain: Texts that it cannot continue; None if none lie apart.
    shoulder: Roughly how many texts may be surprising, where no part lies apart but one component is not enough.
    conflicts: Share of the model's own confidence that the targets do not bear out, with its interval.
    thresholds: The same for confident predictions.
    copies: Share of texts that repeat their context; None if there is no context.
    rate: Of texts that lie apart or repeat their context; None if none do.
    learnt: Share of texts that are certain after a disputed opening, beyond what others let expect.
    """

    texts: int
    conflicts: Estimate | None
    thresholds: tuple[Threshold, ...]
    copies: float | None
    surprising: Part | None = None
    easy: Part | None = None
    uncertain: Part | None = None
    shoulder: float | None = None
    rate: float | None = None
    learnt: float | None = None
    split: Split = Split()
    columns = tuple(COLUMNS)

    @property
    def parts(self) -> dict[str, Part]:
        return {name: part for name in KINDS if (part := getattr(self, name)) is not None}

    @property
    def visible(self) -> bool:
        return bool(self.parts)

    @property
    def share(self) -> float | None:
        """Of texts that lie apart; None if no part does."""
        return min(1.0, sum(part.share for part in self.parts.values())) if self.visible else None

    def chances(self, rows: pa.RecordBatch | pa.Table) -> Floats:
        """That each text belongs to a part that lies apart; NaN where nothing was scored."""
        views = Views.of(rows)
        chances = numpy.minimum(1, sum(self.split.chances(views).values()))
        return numpy.where(numpy.isnan(views.surprise), numpy.nan, chances)

    def as_dict(self) -> dict[str, Any]:
        known = [None if math.isnan(value) else value for value in self.conflicts or ()]  # one text has no interval
        bounds = dict(zip(("share", "low", "high"), known, strict=True)) if known else None
        return {
            "texts": self.texts,
            "rate": self.rate,
            "share": self.share,
            **{name: asdict(self.parts[name]) if name in self.parts else None for name in KINDS},
            "shoulder": self.shoulder,
            "copies": self.copies,
            "learnt": self.learnt,
            "conflicts": bounds,
            "thresholds": [asdict(one) for one in self.thresholds],
        }


@dataclass(frozen=True)
class Sample:
    """Texts that are looked at."""

    views: Views
    tokens: Floats
    copies: Floats  # 1, 0; NaN without a context
    openings: Floats  # error norm of the first token
    rests: Floats  # mean nll of the others

    @property
    def hard(self) -> Floats:
        """How hard texts are after their first token."""
        level = float((self.views.losses**3 * self.tokens).sum() / self.tokens.sum())
        return numpy.asarray(hardness(self.rests, self.tokens, level))

    @property
    def learnt(self) -> float:
        """The share of texts that are noise by their opening, at least."""
        against = self.openings > EVEN
        return excess(*(numpy.histogram(self.hard[some], BINS, (0, 1))[0].tolist() for some in (~against, against)))

    def repeating(self, chances: Floats) -> float | None:
        """The share of texts with these chances that repeat their context; None if there is none."""
        known = ~numpy.isnan(self.copies)
        weight = chances[known].sum()
        return float(chances[known] @ self.copies[known] / weight) if weight > 0 else None


def estimate(scores: Scores, *, seed: int = 0) -> Noise:
    """Look at the scores of up to 50,000 texts, and at all tokens."""
    sample, sums = read(scores, seed)
    repeated = sample.repeating(numpy.ones(len(sample.tokens)))
    tokens = conflicts.conflicts(sums), conflicts.thresholds(sums)
    if len(sample.tokens) < FEWEST:
        return Noise(len(sample.tokens), *tokens, repeated)
    random = numpy.random.default_rng(seed)
    views, parts = sample.views, dict[str, Part]()
    mixture, shoulder = upper_part(views.surprise)
    up = Split(mixture).chances(views)["surprising"]
    if (sample.repeating(1 - up) or 0.0) > MOSTLY:  # the others are copies, so these are the text
        mixture, up = None, numpy.zeros_like(up)
    if mixture is not None:
        bounds = interval(views.surprise, mixture, random)
        parts["surprising"] = _part(sample, up, (float(up.mean()), *bounds), mixture.distance())
    # Where many texts are surprising, the others are a lower peak; they must not pass for easy.
    rest = up < 0.5
    easy = peak(views.losses[rest], random, "below")
    if easy is not None:
        rest &= views.losses >= easy.edge
    uncertain = peak(views.entropies[rest], random, "above", CLEAR)
    split = Split(mixture, easy, uncertain)
    for name, found in (("easy", easy), ("uncertain", uncertain)):
        if found is not None:
            chances = split.chances(views)[name]
            scale = float(chances.mean()) / found.share  # the valley was looked for in the rest only
            shares = (float(chances.mean()), found.low * scale, found.high * scale)
            parts[name] = _part(sample, chances, shares, found.depth)
    surprising, easy_part, uncertain_part = map(parts.get, KINDS)
    return Noise(
        len(sample.tokens), *tokens, repeated, surprising, easy_part, uncertain_part, shoulder,
        _rate(sample, split if parts else None), sample.learnt, split,
    )  # fmt: skip


def _rate(sample: Sample, split: Split | None) -> float | None:
    """The share of texts that are in a part, or repeat their context."""
    noisy = numpy.nan_to_num(sample.copies)
    if split is not None:
        noisy = numpy.maximum(noisy, sum(split.chances(sample.views).values()))
    elif noisy.mean() < SOME:
        return None
    return float(numpy.minimum(1, noisy).mean())


def _part(sample: Sample, chances: Floats, shares: tuple[float, float, float], clear: float) -> Part:
    share, low, high = shares
    tokens = float(chances @ sample.tokens / sample.tokens.sum())
    return Part(share, min(low, share), max(high, share), tokens, sample.repeating(chances), clear)


def read(scores: Scores, seed: int = 0) -> tuple[Sample, dict[str, float]]:
    """The texts that are looked at, and sums over all tokens."""
    random = numpy.random.default_rng(seed)
    keep = min(1.0, MOST / max(1, len(scores)))
    sums = Sums(conflicts.SUMMED)
    parts: list[tuple[Floats, ...]] = []
    for rows in scores.batches([*COLUMNS, *conflicts.COLUMNS, "nll", "context", "text"]):
        require_numbers(rows, [*conflicts.COLUMNS, "nll"])
        numbers, views = conflicts.numbers(rows), Views.of(rows)
        sums.add(["all"] * len(rows), numbers)
        chosen = numpy.flatnonzero((random.random(len(rows)) < keep) & ~numpy.isnan(views.surprise))
        same = [_copy(rows["context"][i].as_py() or "", rows["text"][i].as_py() or "") for i in chosen.tolist()]
        columns = (views.surprise, views.losses, views.entropies, numbers["tokens"], *_openings(rows))
        parts.append((*(column[chosen] for column in columns), numpy.array(same, numpy.float64)))
    found = [numpy.concatenate(c) for c in zip(*parts, strict=True)] or [numpy.zeros(0)] * 7
    *viewed, tokens, openings, rests, repeated = found
    return Sample(Views(*viewed), tokens, repeated, openings, rests), sums.of()


def _openings(rows: pa.RecordBatch) -> tuple[Floats, Floats]:
    """The error norm of the first token of each text, and the loss of the others; NaN where nothing was scored."""
    norms, bounds = lists(rows["error_norm"])
    losses, _ = lists(rows["nll"])
    sums = numpy.concatenate([[0.0], numpy.cumsum(losses, dtype=numpy.float64)])
    lengths = numpy.diff(bounds)
    some = lengths > 0
    first, end = bounds[:-1][some], bounds[1:][some]
    out = numpy.full((2, len(rows)), numpy.nan)
    out[0, some] = norms[first]
    out[1, some] = (sums[end] - sums[first + 1]) / numpy.maximum(lengths[some] - 1, 1)
    return out[0], out[1]


def _copy(context: str, text: str) -> float:
    known = context.strip() and len(text.split()) >= COPY_WORDS
    return float(copies(text, context)) if known else math.nan
