"""Which texts, tokens or sources go: exactly the worst share of them, or all beyond a number.

A score is held so that higher is worse (see `scoring.rank`); what is shown to people has its own sign again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..near import near
from ..scoring import rank
from ..scoring.table import Scores
from ..shares import share_of
from .groups import Grouping
from .prune_edge import Edge, Floats, Mask, edge_of, edge_of_stream

RANDOM = "random"
UNITS = ("sequence", "token", "source")


@dataclass(frozen=True, slots=True)
class Rule:
    """What is asked for; see `prune`."""

    by: str
    fraction: float | None
    threshold: float | None
    unit: str
    group_by: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.by, str):
            raise ValueError(f"by={self.by!r} must be the name of a score, such as 'error_norm'")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed={self.seed!r} must be a whole number from 0 on")
        if self.unit not in UNITS:
            raise ValueError(f"unknown unit {self.unit!r}{near(self.unit, UNITS)}; there are {', '.join(UNITS)}")
        if (self.fraction is None) == (self.threshold is None):
            raise ValueError("give one of fraction (such as 0.1) and threshold (a score)")
        if self.fraction is not None and not (_number(self.fraction) and 0 <= self.fraction <= 1):
            raise ValueError(f"fraction={self.fraction!r} is a share: give a number from 0 to 1")
        if self.threshold is not None and not (_number(self.threshold) and math.isfinite(self.threshold)):
            raise ValueError(f"threshold={self.threshold!r} must be a finite number")
        if (self.unit == "source") != (self.group_by is not None):
            raise ValueError("unit='source' needs group_by, the field that names a source, and no other unit has it")
        if self.by == RANDOM:
            if self.threshold is not None:
                raise ValueError("by='random' has no threshold: give a fraction")
        elif self.unit == "token" and self.by not in rank.SIGNS:
            raise ValueError(f"by={self.by!r} does not rank tokens: give one of {', '.join(rank.SIGNS)}, random")
        elif self.by != "above":
            rank.parse(self.by)

    @property
    def name(self) -> str:
        """What a score is called."""
        if self.by in (RANDOM, "above") or self.unit == "token":
            return self.by
        return "_".join(rank.parse(self.by))

    @property
    def sign(self) -> int:
        """-1: low values are the bad ones."""
        return 1 if self.by in (RANDOM, "above") else rank.SIGNS[rank.parse(self.by)[0]]

    @property
    def limit(self) -> float:
        """The threshold, as a score is held: those of a table have 32 bits, and its 0.1 is not above 0.1."""
        assert self.threshold is not None
        with numpy.errstate(over="ignore"):
            return self.sign * float(numpy.float32(self.threshold))

    @property
    def columns(self) -> list[str]:
        return [] if self.by == RANDOM else [rank.column_of(self.by)]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Group:
    """A source that was dropped, or would have been next."""

    name: str
    records: int
    score: float


@dataclass(frozen=True)
class Chosen:
    """What goes. `scores` and `cutoff` have the sign that people know."""

    rule: Rule
    scores: Floats  # of each text
    dropped: Mask  # likewise
    cutoff: float | None  # the worst score that stays, or the threshold
    units: int
    dropped_units: int
    unscored: int = 0
    groups: list[Group] = field(default_factory=list)
    next_group: Group | None = None  # did not fit into the fraction
    group_of: Callable[[int], Group] | None = None

    def reason(self, index: int) -> str:
        """Why a text goes."""
        rule = self.rule
        group = None if self.group_of is None else self.group_of(index)
        score = float(self.scores[index]) if group is None else group.score
        share = "" if rule.fraction is None else f" (dropped {100 * rule.fraction:g} %)"
        before = "" if group is None else f"{rule.group_by} {group.name}: "
        if rule.by == RANDOM:
            return f"{before}at random{share}"
        if self.cutoff is None:
            return f"{before}{rule.name} {score:.6g}{share}"
        if score == self.cutoff:
            return f"{before}{rule.name} {score:.6g}, as some that stay{share}"
        digits = ".6g" if f"{score:.6g}" != f"{self.cutoff:.6g}" else ".17g"
        sign = ">" if rule.sign > 0 else "<"
        return f"{before}{rule.name} {score:{digits}} {sign} {self.cutoff:{digits}}{share}"


def choose(scores: Scores, rule: Rule) -> Chosen:
    """Whole texts."""
    found = [numpy.zeros(0), *(_of_texts(batch, rule) for batch in scores.batches(["record", *rule.columns]))]
    values = numpy.concatenate(found)
    if rule.by == RANDOM:
        values = numpy.random.default_rng(rule.seed).random(len(values))
    if rule.fraction is not None:
        dropped = edge_of(values, share_of(rule.fraction, len(values))).drop(values)
        cutoff = _worst(values[~dropped], rule)
    else:
        dropped, cutoff = values > rule.limit, rule.threshold
    unscored = int(numpy.isnan(values).sum())
    return Chosen(rule, rule.sign * values, dropped, cutoff, len(values), int(dropped.sum()), unscored)


def _of_texts(batch: pa.RecordBatch, rule: Rule) -> Floats:
    return numpy.zeros(len(batch)) if rule.by == RANDOM else rank.of_texts(batch, rule.by)


def _worst(values: Floats, rule: Rule) -> float | None:
    values = values[~numpy.isnan(values)]
    return float(rule.sign * values.max()) if len(values) else None


def choose_sources(scores: Scores, rule: Rule) -> Chosen:
    """Whole sources, the worst mean first; a source that does not fit into the fraction stays, with all behind it."""
    grouping, numbers = Grouping(rule.group_by), dict[str, int]()
    owners, found = [numpy.zeros(0, numpy.int64)], [numpy.zeros(0)]
    for batch in scores.batches(["record", *grouping.columns, *rule.columns]):
        keys = [numbers.setdefault(key, len(numbers)) for key in grouping.keys(batch)]
        owners.append(numpy.asarray(keys, numpy.int64))
        found.append(_of_texts(batch, rule))
    owner, values, names = numpy.concatenate(owners), numpy.concatenate(found), list(numbers)
    means = _means(owner, values, len(names), rule)
    sizes = numpy.bincount(owner, minlength=len(names))
    groups = [Group(name, int(sizes[i]), float(rule.sign * means[i])) for i, name in enumerate(names)]
    order = [i for i in numpy.argsort(-means, kind="stable").tolist() if not math.isnan(means[i])]
    room = share_of(rule.fraction, len(values)) if rule.fraction is not None else len(values)
    gone, following = list[int](), None
    for i in order:
        if rule.threshold is not None and means[i] <= rule.limit:
            break
        if sizes[i] > room:
            following = groups[i]
            break
        gone.append(i)
        room -= int(sizes[i])
    mask = numpy.zeros(len(names), bool)
    mask[gone] = True
    cutoff = _worst(means[~mask], rule) if rule.threshold is None else rule.threshold
    return Chosen(
        rule, rule.sign * values, mask[owner], cutoff, len(names), len(gone), int(numpy.isnan(values).sum()),
        [groups[i] for i in gone], following, lambda index: groups[owner[index]],
    )  # fmt: skip


def _means(owner: NDArray[numpy.int64], values: Floats, count: int, rule: Rule) -> Floats:
    if rule.by == RANDOM:
        return numpy.random.default_rng(rule.seed).random(count)
    scored = ~numpy.isnan(values)
    with numpy.errstate(invalid="ignore"):
        totals = numpy.bincount(owner[scored], values[scored], count)
        return numpy.asarray(totals / numpy.bincount(owner[scored], minlength=count))


@dataclass(frozen=True)
class Tokens:
    """Tokens with their places. Those without characters, as the end token, cannot be weighted, and do not count."""

    scores: Scores
    rule: Rule

    def batches(self, *columns: str) -> Iterator[tuple[pa.RecordBatch, Floats, NDArray[numpy.int64]]]:
        """Rows, the score of each of their tokens (NaN if it does not count), and the bounds of the texts."""
        rng = numpy.random.default_rng(self.rule.seed)
        for batch in self.scores.batches([*columns, "start", "end", *self.rule.columns]):
            (starts, bounds), (ends, _) = rank.lists(batch["start"]), rank.lists(batch["end"])
            if self.rule.by == RANDOM:
                values = rng.random(len(starts), numpy.float32).astype(numpy.float64)
            else:
                values = rank.of_tokens(batch, self.rule.by)[0]
            values[starts >= ends] = numpy.nan
            yield batch, values, bounds

    def choose(self) -> tuple[Edge, Chosen]:
        """The edge to drop by, and what it comes to."""
        rule = self.rule
        if rule.fraction is not None:
            share = rule.fraction
            edge = edge_of_stream(
                lambda: (values for _, values, _ in self.batches()), lambda total: share_of(share, total)
            )
        else:
            edge = Edge(rule.limit)
        once, rows, count, gone, unscored, worst = Edge(edge.value, edge.ties), 0, 0, 0, 0, -math.inf
        for batch, values, _ in self.batches():
            rows += len(batch)
            dropped = once.drop(values)
            gone += int(dropped.sum())
            kept = values[~dropped]
            unscored += int(numpy.isnan(kept).sum())
            count += len(values)
            worst = max(worst, float(numpy.nanmax(kept, initial=-math.inf)))
        cutoff = rule.threshold if rule.fraction is None else None if worst == -math.inf else rule.sign * worst
        nothing = numpy.zeros(rows)
        return edge, Chosen(rule, nothing, nothing.astype(bool), cutoff, count - unscored, gone, unscored)
