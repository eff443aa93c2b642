"""Runs of a method on the same data, one per seed; and what keeps two of them from being comparable."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .runs import MEASURES, Run

# What must be equal for a difference to be one between methods.
SETTINGS: dict[str, Callable[[Run], Any]] = {
    "data": lambda run: run.data_hash[:12],
    "beams": lambda run: run.evaluation.get("beams"),
    "parameters": lambda run: run.manifest.get("parameters"),
}
# What must be equal for there to be a difference at all.
TEST: dict[str, Callable[[Run], Any]] = {
    "split": lambda run: run.evaluation.get("split"),
    "number of test sentences": lambda run: run.evaluation.get("num"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    mean: float
    sd: float | None  # of a sample; None: one seed
    values: dict[int, float]  # by seed


@dataclass(frozen=True, slots=True)
class Difference:
    """To the baseline, over the seeds that both have."""

    value: float
    p: float | None  # None: not a measure of sentences, or the outputs are missing
    seeds: list[int]
    alike: bool  # False: the runs differ in more than the method; the notes say in what


@dataclass(frozen=True, slots=True)
class Group:
    label: str  # the method, and as much more as tells it from the other groups
    task: str
    method: str
    data_hash: str
    runs: list[Run]  # by seed
    measured: dict[str, Measured]  # what all of them have
    differences: dict[str, Difference] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def version(self) -> str:
        return ", ".join(dict.fromkeys(run.version for run in self.runs))

    def run(self, seed: int) -> Run:
        return next(run for run in self.runs if run.seed == seed)

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "method": self.method,
            "seeds": self.seeds,
            "data_hash": self.data_hash,
            "version": self.version,
            "num": self.runs[0].evaluation.get("num"),
            "beams": self.runs[0].evaluation.get("beams"),
            "metrics": {name: asdict(measured) for name, measured in self.measured.items()},
            "differences": {name: asdict(difference) for name, difference in self.differences.items()},
            "signatures": self.runs[0].signatures,
            "folders": [str(run.folder) for run in self.runs],
        }


def grouped(runs: Sequence[Run]) -> tuple[list[Group], list[str]]:
    """Groups in the order of the runs, and notes about runs that are left out."""
    found: dict[tuple[str, str, str], dict[int, Run]] = {}
    notes = []
    for run in runs:
        seeds = found.setdefault((run.task, run.method, run.data_hash), {})
        if run.seed in seeds:
            first = seeds[run.seed]
            others = [name for name, setting in _training([first, run]).items() if setting(first) != setting(run)]
            but = f"; the two differ in {', '.join(others)}: compare one of them" if others else ""
            notes.append(f"{run.folder} is left out: it has the method, data and seed of {first.folder}{but}")
        else:
            seeds[run.seed] = run
    groups = []
    for (task, method, data), by_seed in found.items():
        tasks = {t for t, m, _ in found if m == method}
        hashes = {h for _, m, h in found if m == method}
        more = [task] * (len(tasks) > 1) + [data[:8]] * (len(hashes) > 1)
        label = f"{method} [{', '.join(more)}]" if more else method
        ordered = [by_seed[seed] for seed in sorted(by_seed)]
        names = [name for name in MEASURES if all(name in run.values for run in ordered)]
        groups.append(Group(label, task, method, data, ordered, {name: _measured(name, ordered) for name in names}))
    return groups, notes


def _measured(name: str, runs: Sequence[Run]) -> Measured:
    values = {run.seed: run.values[name] for run in runs}
    sd = statistics.stdev(values.values()) if len(values) > 1 else None
    return Measured(statistics.fmean(values.values()), sd, values)


def alike(a: Run, b: Run) -> bool:
    """Whether two runs differ in nothing but the method, as far as they say."""
    return all(fact(a) == fact(b) for fact in (SETTINGS | _training([a, b])).values())


def obstacle(a: Run, b: Run, name: str) -> str | None:
    """What makes two scores measure different things."""
    if found := next((what for what, fact in TEST.items() if fact(a) != fact(b)), None):
        return found
    if a.signatures.get(name) != b.signatures.get(name):
        return "signature"
    if a.texts and b.texts and (a.texts.sources, a.texts.references) != (b.texts.sources, b.texts.references):
        return "text in the test"
    return None


def differing(groups: Sequence[Group]) -> list[str]:
    """A note for each thing in which runs of one task differ."""
    notes = []
    for task in dict.fromkeys(group.task for group in groups):
        pairs = [(group.label, run) for group in groups if group.task == task for run in group.runs]
        runs = [run for _, run in pairs]
        facts = SETTINGS | _training(runs) | TEST | _signatures(runs)
        for what, fact in facts.items():
            found: dict[Any, dict[str, None]] = {}
            for label, run in pairs:
                if fact(run) is not None:  # else it was not measured, which the table shows
                    found.setdefault(fact(run), {})[label] = None
            if len(found) > 1:
                parts = "; ".join(f"{value} ({_listed(list(labels))})" for value, labels in found.items())
                notes.append(f"{task}: the runs differ in {what}: {parts}")
    return notes


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) < 4 else f"{labels[0]} and {len(labels) - 1} more"


def _training(runs: Sequence[Run]) -> dict[str, Callable[[Run], Any]]:
    """How the models learned, as far as all of the runs say it."""

    def setting(name: str) -> Callable[[Run], Any]:
        return lambda run: str(run.training[name])

    first, *others = runs
    return {name: setting(name) for name in first.training if all(name in run.training for run in others)}


def _signatures(runs: Sequence[Run]) -> dict[str, Callable[[Run], Any]]:
    def signature(name: str) -> Callable[[Run], Any]:
        return lambda run: run.signatures.get(name)

    return {f"signature of {name}": signature(name) for run in runs for name in run.signatures}
