"""A corpus at a glance: which groups are worst, how much is noise, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow as pa

from .._version import __version__
from ..scoring.memory import scores_of
from ..scoring.rank import column_of, lists, of_texts
from ..scoring.table import CUTOFF, ORIGIN
from . import advice, noise_rate
from .groups import LENGTH, Grouping, check_field
from .noise_rate import Noise
from .sums import Estimate, Sums, mean, ratio

MOST_GROUPS = 100_000
BY = ("error_norm_mean",)


@dataclass(frozen=True)
class Summary:
    """Args:
    whole: The row of all texts.
    groups: A row for each group, the worst first; empty without `group_by`.
    noise: How much of the corpus is noise, as far as the scores can tell.
    findings: The same in sentences.
    advice: What to do, in sentences.
    settings: What the numbers depend on.
    """

    whole: dict[str, Any]
    groups: list[dict[str, Any]]
    noise: Noise
    findings: list[str]
    advice: advice.Advice
    settings: dict[str, Any]

    @property
    def table(self) -> pa.Table:
        """The groups, or all texts if there are none."""
        return pa.Table.from_pylist(self.groups or [self.whole])

    def as_dict(self, worst: int | None = None) -> dict[str, Any]:
        return {
            "errornorm": __version__,
            "settings": self.settings,
            "whole": self.whole,
            "noise": {**self.noise.as_dict(), "sentences": self.findings},
            "advice": self.advice.as_dict(),
            "groups": self.groups[:worst],
            "num_groups": len(self.groups),
        }


def summarize(scores: Any, *, group_by: str | None = None, by: Sequence[str] = BY, seed: int = 0) -> Summary:
    """Rank the groups of a corpus, estimate its noise, and say what to do.

    Args:
        scores: What `score` made: a folder, its `Scores`, a pyarrow table or a pandas data frame.
        group_by: A field of the records (a dotted name reaches into objects), or `length`, the number of words.
        by: Scores of texts; groups are ranked by the first.
        seed: Of the resamples for the noise rate.
    """
    scores = scores_of(scores)
    by = list(dict.fromkeys(by)) or list(BY)
    columns = [column_of(name) for name in by]  # refuses unknown names
    if group_by not in (None, LENGTH):
        check_field(scores, group_by)
    noise = noise_rate.estimate(scores, seed=seed)
    grouping = Grouping(group_by)
    sums = Sums(_summed(by))
    cutoff = float((scores.meta.get("settings") or {}).get("cutoff", CUTOFF))  # a table in memory does not say
    for rows in scores.batches(list(dict.fromkeys([*columns, "error_norm", *grouping.columns, *noise.columns]))):
        sums.add(grouping.keys(rows), _numbers(rows, by, cutoff, noise))
        if len(sums.groups) > MOST_GROUPS:
            raise ValueError(f"{group_by} has more than {MOST_GROUPS} values: choose a field that names sources")
    whole = _row("all", sums.of(), by, noise)
    groups = [_row(name, sums.of(name), by, noise) for name in sums.groups] if group_by is not None else []
    settings = {
        "group_by": group_by, "by": by, "seed": seed, "cutoff": cutoff,
        "intervals": "95 %, over texts: t for means, the spread about the ratio for shares of tokens",
        "scores": {name: scores.meta.get(name) for name in ORIGIN},
    }  # fmt: skip
    groups.sort(key=lambda row: _order(row, by[0]))
    advised = advice.advise(noise).about(scores.meta.get("corpus") or {})
    return Summary(whole, groups, noise, advice.describe(noise), advised, settings)


def _summed(by: Sequence[str]) -> list[str]:
    means = [name for score in (*by, "noisy") for name in (f"has_{score}", score, f"{score}*{score}")]
    return ["texts", "tokens", "high", "tokens*tokens", "high*high", "high*tokens", *means]


def _numbers(rows: pa.RecordBatch, by: Sequence[str], cutoff: float, noise: Noise) -> dict[str, Any]:
    """What is summed, for each text."""
    norms, bounds = lists(rows["error_norm"])
    high = numpy.concatenate([[0], numpy.cumsum(norms > cutoff)])
    values = {"texts": numpy.ones(len(rows)), "tokens": numpy.diff(bounds).astype(numpy.float64),
              "high": numpy.diff(high[bounds]).astype(numpy.float64)}  # fmt: skip
    for name in by:
        values[name] = of_texts(rows, name)
        values[f"has_{name}"] = (~numpy.isnan(values[name])).astype(numpy.float64)
    values["noisy"] = noise.chances(rows)
    values["has_noisy"] = (~numpy.isnan(values["noisy"])).astype(numpy.float64)
    return values


def _row(name: str, sums: Mapping[str, float], by: Sequence[str], noise: Noise) -> dict[str, Any]:
    row: dict[str, Any] = {"group": name, "texts": int(sums["texts"]), "tokens": int(sums["tokens"])}
    for score in by:
        row |= _shown(score, mean(sums, score, f"has_{score}"))
    row |= _shown("tokens_above", ratio(sums, "high", "tokens", "texts"), 0.0, 1.0)
    row |= _shown("noise_rate", mean(sums, "noisy", "has_noisy") if noise.visible else None, 0.0, 1.0)
    return row


def _shown(name: str, found: Estimate | None, low: float = -math.inf, high: float = math.inf) -> dict[str, Any]:
    """A value and its interval; None where it is not known."""
    value, *ends = found or (math.nan, math.nan, math.nan)
    numbers = [value, *(min(max(end, low), high) if not math.isnan(end) else end for end in ends)]
    names = (name, f"{name}_low", f"{name}_high")
    return {key: None if math.isnan(one) else one for key, one in zip(names, numbers, strict=True)}


def _order(row: Mapping[str, Any], by: str) -> tuple[float, float]:
    """By the lower end of the interval: a group is bad if it is surely bad; a few texts say little."""
    low, value = row[f"{by}_low"], row[by]
    return (math.inf if low is None else -low, math.inf if value is None else -value)
