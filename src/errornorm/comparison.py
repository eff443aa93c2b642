"""Runs side by side: means over seeds, differences to a baseline, and whether these are more than chance."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .data.lines import DataError
from .data.values import finite
from .evaluation import picture
from .evaluation.groups import Difference, Group, alike, differing, grouped, obstacle
from .evaluation.runs import LOWER, MEASURES, Run, find
from .evaluation.significance import Resampler, p_value
from .near import near

MAIN = ("bleu", "rougeLsum", "chrf", "perplexity", "nll", "copies")  # the first that was measured
DIGITS = {"nll": ".4f", "copies": ".1%"}  # of the others, .2f


@dataclass(frozen=True, slots=True)
class Comparison:
    groups: list[Group]
    baseline: str
    metric: str  # the main one
    samples: int
    seed: int
    notes: list[str]  # what keeps rows from being comparable, and what was left out
    unfinished: list[Path]

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The header and the rows of a table. A star: the notes say what else differs."""
        others = [name for name in MEASURES if name != self.metric and any(name in g.measured for g in self.groups)]
        header = ("method", "seeds", self.metric, "difference", "p", *others, "data", "version")
        rows = [
            (
                group.method, str(len(group.runs)), _cell(group, self.metric), *self._difference(group),
                *(_cell(group, name) for name in others), group.data_hash[:8], group.version,
            )
            for group in self.groups
        ]  # fmt: skip
        if len({group.task for group in self.groups}) > 1:
            return ("task", *header), [(g.task, *row) for g, row in zip(self.groups, rows, strict=True)]
        return header, rows

    def _difference(self, group: Group) -> tuple[str, str]:
        found = group.differences.get(self.metric)
        if found is None:
            return ("baseline" if group.method == self.baseline else "-"), "-"
        star = "" if found.alike else " *"
        return f"{found.value:+{_digits(self.metric)}}{star}", "-" if found.p is None else f"{found.p:.3f}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN: that is None."""
        facts = {
            "baseline": self.baseline,
            "metric": self.metric,
            "samples": self.samples,
            "seed": self.seed,
            "rows": [group.as_dict() for group in self.groups],
            "notes": self.notes,
            "unfinished": [str(path) for path in self.unfinished],
        }
        return dict(finite(facts))

    def draw(self, path: Path) -> None:
        """A picture: curves of the methods on the left, the main measure on the right. Needs matplotlib."""
        shown = [group for group in self.groups if self.metric in group.measured]
        # Not the loss: each method has its own.
        valid = any(len(run.curve("valid", "nll")) > 1 for group in shown for run in group.runs)
        series = [
            picture.Series(
                group.label,
                [run.curve("valid" if valid else "train", "nll") for run in group.runs],
                group.measured[self.metric].mean,
                group.measured[self.metric].sd,
                _cell(group, self.metric).removesuffix(" ± -"),
                group.method == self.baseline,
            )
            for group in shown
        ]
        better = "lower" if self.metric in LOWER else "higher"
        curves = f"NLL per token in {'validation' if valid else 'training'}"
        picture.draw(series, path, curves, f"{self.metric} ({better} is better)")


def compare(
    folders: Sequence[Path],
    baseline: str = "mle",
    metric: str | None = None,
    samples: int = 1000,
    seed: int = 12345,
    *,
    flores_model: Path | None = None,
) -> Comparison:
    """Compare finished runs.

    Runs of one task, method and data are a group; its numbers are the mean and the sample standard deviation over
    seeds. Each group is compared with the baseline's group on the same data (or, if there is none, on the only other
    data), over the seeds that both have: the difference is the mean, over these seeds, of the run's score minus the
    baseline's of equal seed.

    The p-value is that of a two-sided paired bootstrap over test sentences (`evaluation.significance`): sentences are
    drawn with replacement, the same for every run; each run's corpus score is computed anew, and from these scores the
    same mean of differences. Seeds are taken as they are: the p-value says what other test sentences might change, the
    standard deviation what other seeds might. It is not corrected for the number of methods. Measures without a value
    per sentence (nll, perplexity) have a difference, but no p-value.

    Scores on other test sentences or with another signature are not compared at all. Where data, beams, parameters
    or settings of the training differ, they are, with a star. Notes tell of both.

    Args:
        folders: Run directories, or folders of seed-* ones. Those without an evaluation are listed as unfinished.
        baseline: A method, as the runs spell it.
        metric: The main measure; if not given, the first of bleu, rougeLsum, chrf, perplexity, nll, copies there is.
        samples: Resamples of the test.
        seed: Of the resampling. Equal seeds give equal p-values.
        flores_model: The file that BLEU by flores200 needs.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}: give at least 1")
    runs, unfinished = find(folders)
    if not runs:
        places = ", ".join(map(str, folders)) or "no folder"
        raise DataError(f"no finished evaluation in {places}; let `errornorm train` come to its end")
    groups, notes = grouped(runs)
    main = _main(groups, metric)
    groups.sort(key=lambda group: (group.task, group.data_hash, group.method != baseline))  # stable: else as given
    notes += _missing(groups, baseline) + differing(groups)
    resampler = Resampler(samples, seed, flores_model)
    compared = []
    for group in groups:
        base = _partner(group, groups, baseline)
        found, more = _differences(group, base, resampler) if base else ({}, [])
        compared.append(replace(group, differences=found))
        notes += more
    return Comparison(compared, baseline, main, samples, seed, notes + resampler.notes, unfinished)


def _main(groups: Sequence[Group], metric: str | None) -> str:
    there = [name for name in MEASURES if any(name in group.measured for group in groups)]
    if not there:
        raise DataError(f"{groups[0].runs[0].folder}: the evaluation has no measure; evaluate again")
    if metric is None:
        return next(name for name in (*MAIN, *there) if name in there)
    if metric not in there:
        raise ValueError(f"no run has the metric {metric!r}{near(metric, there)}; there are {', '.join(there)}")
    return metric


def _missing(groups: Sequence[Group], baseline: str) -> list[str]:
    """A note if there is no baseline."""
    methods = list(dict.fromkeys(group.method for group in groups))
    if baseline in methods:
        return []
    text = f"no run of the baseline {baseline!r}{near(baseline, methods)}; there are {', '.join(methods)}"
    if baseline != "mle":  # then it was asked for
        raise ValueError(text)
    return [f"{text}: no differences"]


def _partner(group: Group, groups: Sequence[Group], baseline: str) -> Group | None:
    if group.method == baseline:
        return None
    found = [g for g in groups if (g.task, g.method) == (group.task, baseline)]
    same = [g for g in found if g.data_hash == group.data_hash]
    return same[0] if same else found[0] if len(found) == 1 else None


def _differences(group: Group, base: Group, resampler: Resampler) -> tuple[dict[str, Difference], list[str]]:
    """Differences to the baseline, and notes about what was not compared."""
    both = f"{group.label} and {base.label}"
    seeds = [seed for seed in group.seeds if seed in base.seeds]
    if not seeds:
        return {}, [f"{both} are not compared: they have no seed in common"]
    notes = []
    if alone := sorted(set(group.seeds) ^ set(base.seeds)):
        notes.append(f"{both}: no partner of equal seed for {', '.join(map(str, alone))}")
    pairs = [(group.run(seed), base.run(seed)) for seed in seeds]
    found: dict[str, Difference] = {}
    for name in [name for name in group.measured if name in base.measured]:
        if reason := next(filter(None, (obstacle(a, b, name) for a, b in pairs)), None):
            notes.append(f"{both} are not compared by {name}: another {reason}")
            continue
        value = statistics.fmean(a.values[name] - b.values[name] for a, b in pairs)
        found[name] = Difference(value, _p(name, pairs, resampler), seeds, all(alike(a, b) for a, b in pairs))
    return found, notes


def _p(name: str, pairs: Sequence[tuple[Run, Run]], resampler: Resampler) -> float | None:
    found = [(resampler.scores(a).get(name), resampler.scores(b).get(name)) for a, b in pairs]
    both = [(a, b) for a, b in found if a is not None and b is not None]
    if len(both) < len(pairs):
        return None
    differences = [a.scores - b.scores for a, b in both]
    value = statistics.fmean(a.value - b.value for a, b in both)
    return p_value(value, sum(differences[1:], differences[0]) / len(both))


def _digits(name: str) -> str:
    return DIGITS.get(name, ".2f")


def _cell(group: Group, name: str) -> str:
    if name not in group.measured:
        return "-"
    found, digits = group.measured[name], _digits(name)
    return f"{found.mean:{digits}} ± {'-' if found.sd is None else format(found.sd, digits)}"
