"""Whether a model is right as often as it believes.

A model that knows its limits gives the targets as much probability, on the whole, as it gives to itself:
sum p(y) = sum ||p||^2. What is missing is noise in single words that it has not learned, or a model that is too sure.
The squared norm of p needs no further statistic: ||e||^2 = ||p||^2 - 2 p(y) + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..scoring.rank import lists
from .sums import Estimate, ratio

Floats = NDArray[numpy.float64]
THRESHOLDS = (1.0, 1.1, 1.2, 1.3)
COLUMNS = ["error_norm", "p_target"]
SUMMED = [
    *("missing", "sure", "missing*missing", "sure*sure", "missing*sure", "texts", "tokens"),
    *(f"{name}_{at}" for at in THRESHOLDS for name in ("above", "expected", "missed")),
]


@dataclass(frozen=True, slots=True)
class Threshold:
    """What an error norm above `at` means.

    Args:
        at: The threshold.
        dropped: Share of all tokens above it.
        surplus: Share of misses that a model which knows its limits would not have made, where it is that sure.
    """

    at: float
    dropped: float
    surplus: float


def numbers(rows: pa.RecordBatch) -> dict[str, Floats]:
    """What is summed, for each text."""
    norms, bounds = lists(rows["error_norm"])
    p, norms = lists(rows["p_target"])[0].astype(numpy.float64), norms.astype(numpy.float64)
    squared = numpy.clip(norms**2 + 2 * p - 1, p**2, 1)

    def total(values: Floats) -> Floats:
        return numpy.diff(numpy.concatenate([[0.0], numpy.cumsum(values)])[bounds])

    out = {"missing": total(squared - p), "sure": total(squared), "texts": numpy.ones(len(rows)),
           "tokens": numpy.diff(bounds).astype(numpy.float64)}  # fmt: skip
    for at in THRESHOLDS:
        sure = squared > at**2 - 1  # where a miss would be above the threshold
        out[f"above_{at}"] = total((norms > at).astype(numpy.float64))
        out[f"expected_{at}"], out[f"missed_{at}"] = total(sure * (1 - squared)), total(sure * (1 - p))
    return out


def conflicts(sums: Mapping[str, float]) -> Estimate | None:
    """The share of the model's confidence that the targets do not bear out."""
    return ratio(sums, "missing", "sure", "texts")


def thresholds(sums: Mapping[str, float]) -> tuple[Threshold, ...]:
    def one(at: float) -> Threshold:
        expected, seen = sums[f"expected_{at}"], sums[f"missed_{at}"]
        return Threshold(at, sums[f"above_{at}"] / max(1.0, sums["tokens"]), 1 - expected / seen if seen > 0 else 0.0)

    return tuple(map(one, THRESHOLDS))
