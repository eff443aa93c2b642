"""Scores against labels: does a high score mean noise?

For each score: AUROC, average precision, and the overlap of the histograms of clean and noisy units. Intervals come
from resampling texts, for tokens of one text are not independent; equal resamples are used for all scores, so that
differences are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from .._version import __version__
from ..data.files import written
from ..data.lines import DataError
from ..data.visible import json_text
from ..near import near
from ..scoring.memory import scores_of
from ..scoring.rank import parse
from ..scoring.table import ORIGIN, Scores, refuse_among_scores
from .correlation import correlation
from .groups import LENGTH, Grouping, check_field
from .labels import Judge, find_kind
from .separation import BARS, Cells, draw, interval
from .units import LEVELS, SCORES, Collected, Units, collect

Floats = NDArray[numpy.float64]
Ints = NDArray[numpy.int64]
MEASURES = ("auroc", "average_precision", "overlap", "correlation")
MOST_GROUPS = 200
SHOWN = ("nll", "error_norm")  # in the figure


@dataclass(frozen=True)
class Detection:
    """What the labels say about the scores.

    Args:
        rows: One for each group, level and score; see `table`.
        texts: Whose labels could be used.
        unusable: How many could not, by reason.
        histograms: Of the figure: for each score its bins' bounds, and how many clean and noisy units are in each.
        settings: What the numbers depend on.
    """

    rows: list[dict[str, Any]]
    texts: int
    unusable: dict[str, int]
    histograms: dict[str, dict[str, Any]]
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "errornorm": __version__,
            "settings": self.settings,
            "texts": self.texts,
            "unusable": self.unusable,
            "notes": self.notes,
            "rows": self.rows,
            "histograms": self.histograms,
        }

    def save(self, folder: Path) -> list[Path]:
        """detect.json and detect.png."""
        from .figure import draw_histograms

        refuse_among_scores(folder, "detection")
        with written(folder / "detect.json") as file:
            file.write(json_text(self.as_dict(), indent=1) + "\n")
        draw_histograms(self.histograms, folder / "detect.png")
        return [folder / "detect.json", folder / "detect.png"]


def detect(
    scores: Any,
    labels: str,
    *,
    level: str = "all",
    positive: Sequence[str] | None = None,
    group_by: str | None = None,
    resample_by: str | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Detection:
    """Measure how well each score finds what people labelled as noise.

    Args:
        scores: What `score` made: a folder, its `Scores`, a pyarrow table or a pandas data frame.
        labels: Field of the records that has them; see `errornorm.curation.labels`.
        level: "token", "word", "sentence", or "all".
        positive: Labels that mean noise, if they are not 0 and 1.
        group_by: A field, or `length`: numbers for each group too.
        resample_by: A field whose equal values are drawn together, such as the document of several summaries; else
            each text by itself.
        bootstrap: Resamples for the intervals; 0: no intervals.
        seed: Of the resamples.
    """
    scores = scores_of(scores)
    if level not in (*LEVELS, "all"):
        raise ValueError(
            f"unknown level {level!r}{near(level, [*LEVELS, 'all'])}; there are {', '.join(LEVELS)} and all"
        )
    check_field(scores, labels)
    for name in {group_by, resample_by} - {None, LENGTH}:
        check_field(scores, str(name))
    judge = Judge(labels, find_kind(scores, labels), positive)
    levels = LEVELS if level == "all" else (level,)
    found = collect(scores, judge, levels, Grouping(group_by), Grouping(resample_by))
    judge.check()
    _check(scores, labels, found)
    clusters = _clusters(found, resample_by)
    rows = _rows(found.units, None, clusters, bootstrap, seed, judge.kind != "text")
    groups = numpy.asarray(found.groups, dtype=object)
    names = sorted(set(found.groups)) if group_by is not None else []
    if len(names) > MOST_GROUPS:
        raise ValueError(f"{group_by} has {len(names)} values, and {MOST_GROUPS} can be told apart: choose another")
    for name in names:
        mine = groups == name
        parts = {which: units.of(mine) for which, units in found.units.items()}
        rows += _rows(parts, name, clusters[mine], bootstrap, seed, judge.kind != "text")
    settings = {
        "labels": labels, "kind": judge.kind, "positive": None if positive is None else sorted(positive),
        "level": level, "group_by": group_by, "resample_by": resample_by, "bootstrap": bootstrap, "seed": seed,
        "bins": BARS, "scores": {name: scores.meta.get(name) for name in ORIGIN},
    }  # fmt: skip
    first = next(level for level, units in found.units.items() if units.mixed)  # `_check`: there is one
    return Detection(
        rows, len(found.groups), dict(found.unusable), _histograms(found.units[first], first), settings,
        _notes(scores, found, judge),
    )  # fmt: skip


def _check(scores: Scores, labels: str, found: Collected) -> None:
    if not found.groups:
        reason = found.unusable.most_common(1)
        hint = "; name the labels that mean noise with --positive" if "not 0 or 1" in str(reason) else ""
        raise DataError(
            f"{scores.folder}: no label of {labels} can be used ({reason[0][0] if reason else 'no rows'}){hint}"
        )
    if any(units.mixed for units in found.units.values()):
        return
    level, units = next(iter(found.units.items()))
    if not len(units):
        raise DataError(f"{scores.folder}: no {level} has both a score and a label in {labels}")
    kind = "noisy" if units.noisy.any() else "clean"
    raise DataError(
        f"{scores.folder}: {labels} says that all {len(units)} {level}s are {kind}, so there is nothing to tell apart; "
        "use another field or level"
    )


def _notes(scores: Scores, found: Collected, judge: Judge) -> list[str]:
    notes = []
    if found.unusable:
        reasons = ", ".join(f"{reason}: {num}" for reason, num in found.unusable.most_common())
        notes.append(f"{found.unusable.total()} of {len(scores)} texts have no usable label ({reasons})")
    if found.unscored:
        notes.append(f"{found.unscored} labelled words have no token that begins in them, and are not counted")
    if judge.kind == "text" and len(found.units) > 1:
        notes.append("a label is for the whole text: all its tokens and words have it")
    return notes


def _clusters(found: Collected, resample_by: str | None) -> Ints:
    """What each text is drawn with, as a number."""
    if resample_by is None:
        return numpy.arange(len(found.groups))
    # Not by an array of the names: it would have room for the longest of them in each place.
    numbers = {name: number for number, name in enumerate(sorted(set(found.clusters)))}
    return numpy.asarray([numbers[name] for name in found.clusters])


def _rows(
    levels: dict[str, Units], group: str | None, clusters: Ints, bootstrap: int, seed: int, shares: bool
) -> list[dict[str, Any]]:
    texts = len(clusters)
    different, owners = numpy.unique(clusters, return_inverse=True)
    times = draw(len(different), bootstrap, seed)[:, owners]
    rows = []
    for level, units in levels.items():
        known: dict[str, tuple[dict[str, float], dict[str, Floats]]] = {}
        for name in SCORES[level]:
            row: dict[str, Any] = {"group": group, "level": level, "score": name, "texts": texts, "units": len(units),
                   "noisy": int(units.noisy.sum()), "base_rate": float(units.noisy.mean()) if len(units) else None,
                   "against": None}  # fmt: skip
            if 0 < row["noisy"] < len(units):
                known[name] = _measured(units, name, times, shares and level == "sentence")
                row |= _described(*known[name])
                row["against"] = _baseline(level, name)
                row |= _compared(known[name], known[row["against"]])
            rows.append(_completed(row))
    return rows


def _baseline(level: str, name: str) -> str:
    """The loss, put together in the same way."""
    return "nll" if level == "token" else "nll_mean" if name == "above" else f"nll_{parse(name)[1]}"


def _measured(
    units: Units, name: str, times: NDArray[numpy.uint16], shares: bool
) -> tuple[dict[str, float], dict[str, Floats]]:
    """The measures of all units, and how far those of resamples are from them."""
    cells = Cells(units.values[name], units.noisy)
    exact = cells.exact()
    around = cells.resampled(units.texts, times) if len(times) else {}
    if shares and units.share is not None:
        exact["correlation"], drawn = correlation(units.values[name], units.share, times[:, units.texts])
        if len(times):
            around["correlation"] = drawn
    return exact, around


def _described(exact: dict[str, float], around: dict[str, Floats]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in exact.items():
        row |= _with_interval(name, value, around.get(name), -1.0 if name == "correlation" else 0.0, 1.0)
    return row


def _compared(
    one: tuple[dict[str, float], dict[str, Floats]], other: tuple[dict[str, float], dict[str, Floats]]
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in one[0].items():
        around = one[1][name] - other[1][name] if name in one[1] else None
        row |= _with_interval(f"{name}_difference", value - other[0][name], around, -2.0, 2.0)
    return row


def _with_interval(name: str, value: float, around: Floats | None, low: float, high: float) -> dict[str, Any]:
    found = None if around is None else interval(value, around, low, high)
    return dict(zip((name, f"{name}_low", f"{name}_high"), (value, *(found or (None, None))), strict=True))


def _completed(row: dict[str, Any]) -> dict[str, Any]:
    """Every row has every column, in one order."""
    for measure in MEASURES:
        for name in (measure, f"{measure}_difference"):
            for end in ("", "_low", "_high"):
                value = row.setdefault(name + end, None)
                row[name + end] = None if value is None or numpy.isnan(value) else value
    return row


def _histograms(units: Units, level: str) -> dict[str, dict[str, Any]]:
    out = {}
    for name in SHOWN if level == "token" else [f"{name}_mean" for name in SHOWN]:
        values = units.values[name]
        bounds = Cells(values, units.noisy).bars
        kept = numpy.clip(values, bounds[0], bounds[-1])
        clean, noisy = (numpy.histogram(kept[units.noisy == side], bounds)[0].tolist() for side in (False, True))
        out[name] = {"level": level, "bounds": bounds.tolist(), "clean": clean, "noisy": noisy}
    return out
