"""What ranks tokens, words and texts: a statistic, and how it is put together. Higher is more suspicious.

A name such as `error_norm` ranks tokens. For words and texts it has an aggregate behind it (`error_norm_max`); without
one the mean is meant. `above` is the share of tokens whose error norm is above the cutoff of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..near import near

Floats = NDArray[numpy.float64]
SIGNS = {"nll": 1, "error_norm": 1, "entropy": 1, "p_target": -1, "margin": -1}  # -1: low values are suspicious
AGGREGATES: dict[str, Callable[[Floats, NDArray[Any]], Floats]] = {
    "mean": lambda values, begins: numpy.add.reduceat(values, begins) / numpy.diff([*begins, len(values)]),
    "max": lambda values, begins: numpy.maximum.reduceat(values, begins),
    "first": lambda values, begins: values[begins],
    "sum": lambda values, begins: numpy.add.reduceat(values, begins),
}
AGGREGATED = tuple(f"{name}_{how}" for name in SIGNS for how in AGGREGATES)
NAMES = [*SIGNS, *AGGREGATED, "above"]


def parse(name: str) -> tuple[str, str]:
    """The statistic and the aggregate.

    >>> parse("error_norm"), parse("nll_max")
    (('error_norm', 'mean'), ('nll', 'max'))
    """
    if name in SIGNS:
        return name, "mean"
    statistic, _, how = name.rpartition("_")
    if statistic not in SIGNS or how not in AGGREGATES:
        raise ValueError(
            f"unknown score {name!r}{near(name, NAMES)}; there are {', '.join(SIGNS)}, each with "
            f"{', '.join('_' + how for how in AGGREGATES)}, above, and for prune random"
        )
    return statistic, how


def lists(column: Any) -> tuple[NDArray[Any], NDArray[numpy.int64]]:
    """A column of lists as one array, and the bounds of the lists in it (one more than there are lists)."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    bounds = column.offsets.to_numpy().astype(numpy.int64)
    values = column.values.to_numpy(zero_copy_only=False)
    return values[bounds[0] : bounds[-1]], bounds - bounds[0]


def of_tokens(rows: pa.RecordBatch | pa.Table, name: str) -> tuple[Floats, NDArray[numpy.int64]]:
    """The score of every token, one text after another, and the bounds of the texts."""
    values, bounds = lists(rows[name])
    return SIGNS[name] * values.astype(numpy.float64), bounds


def of_texts(rows: pa.RecordBatch | pa.Table, name: str) -> Floats:
    """The score of every text; NaN where no token was scored. Needs the statistic's column, or `above`."""
    if name == "above":
        return numpy.asarray(rows["above"].to_numpy(zero_copy_only=False), numpy.float64)
    statistic, how = parse(name)
    values, bounds = of_tokens(rows, statistic)
    return aggregate(values, bounds, how)


def aggregate(values: Floats, bounds: NDArray[numpy.int64], how: str) -> Floats:
    """One number for each list between two bounds; NaN for an empty one."""
    out = numpy.full(len(bounds) - 1, numpy.nan)
    full = bounds[1:] > bounds[:-1]
    if full.any():
        out[full] = AGGREGATES[how](values, bounds[:-1][full])
    return out


def column_of(name: str) -> str:
    """The column of the table that a score needs."""
    return "above" if name == "above" else parse(name)[0]
