"""One walk over all scores: exact counts of every token, and which rows are worth a look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow as pa
from numpy.typing import NDArray

from ..curation.groups import LENGTH as BY_LENGTH
from ..data.lines import DataError
from ..near import near
from ..scoring.objects import AGAIN, fields_of
from ..scoring.rank import aggregate, lists
from ..scoring.table import Scores
from .grid import LOSS, NORM, RED, YELLOW, Counts, count, known, places
from .groups import Batch, Grouping, Groupings
from .sample import Best, Floats, in_turn, lots

COLUMNS = ("record", "fields", "error_norm", "nll")
MOST_ROWS = 1_500  # on the page
STRATUM = 0.025  # of the highest error norm
REASONS = {  # why a row is on the page, and how many are for this reason
    "random": ("drawn at random", 400),
    "norm_max": ("highest error norm of a token", 150),
    "norm_mean": ("highest mean error norm", 150),
    "nll_mean": ("highest mean loss", 100),
    "near_yellow": (f"a token closest to {YELLOW}", 60),
    "near_red": (f"a token closest to {RED}", 60),
    "clean": ("lowest mean error norm", 50),
    "levels": ("for every level of the threshold", 6),
    "groups": ("for every source", 0),
}


@dataclass(slots=True)
class Tally:
    """Counts over all tokens and all texts, by the number of thresholds they are above."""

    rows: int
    tokens: int
    undefined: int  # tokens whose error norm or loss is no number
    norm_mean: float
    loss_mean: float
    norm: Counts
    loss: Counts  # in three rows: error norm up to yellow, up to red, above
    rows_by_norm: Counts  # texts by their highest error norm
    rows_by_loss: Counts


class Gathered:
    """What the walk found."""

    def __init__(self, group_by: str | None) -> None:
        classes = numpy.zeros((3, len(LOSS) + 1), numpy.int64)
        norm, rows_by_norm = numpy.zeros((2, len(NORM) + 1), numpy.int64)
        rows_by_loss = numpy.zeros(len(LOSS) + 1, numpy.int64)
        self.tally = Tally(0, 0, 0, 0.0, 0.0, norm, classes, rows_by_norm, rows_by_loss)
        self.groupings = Groupings(group_by)
        self.best = {name: Best(most) for name, (_, most) in REASONS.items() if most}
        self.spare = Best(MOST_ROWS)  # at random too, if there is room

    def add(self, some: pa.RecordBatch) -> None:
        norms, bounds = lists(some["error_norm"])
        nlls, other = lists(some["nll"])
        if not numpy.array_equal(bounds, other):
            raise DataError(f"the columns error_norm and nll are not of the same tokens; {AGAIN}")
        records = some["record"].to_numpy(zero_copy_only=False).astype(numpy.int64)
        rows = numpy.arange(self.tally.rows, self.tally.rows + len(records))
        wide = norms.astype(numpy.float64)
        means = aggregate(wide, bounds, "mean")
        batch = Batch(rows, lots(records), norms, nlls, bounds, places(norms, NORM), places(nlls, LOSS), means)
        self._count(batch)
        self._choose(batch, wide)
        self.groupings.add(list(fields_of(some)), batch)

    def _count(self, batch: Batch) -> None:
        tally = self.tally
        tally.rows += len(batch.row)
        tally.tokens += len(batch.norms)
        bad = ~(numpy.isfinite(batch.norms) & numpy.isfinite(batch.nlls))
        tally.undefined += int(bad.sum())
        tally.norm_mean += float(known(batch.norms).sum())
        tally.loss_mean += float(known(batch.nlls).sum())
        tally.norm += count(batch.norm_place, NORM)
        kind = (batch.norms > YELLOW).astype(numpy.int64) + (batch.norms > RED)
        for k in range(3):
            tally.loss[k] += count(batch.loss_place[kind == k], LOSS)
        full = batch.sizes > 0
        if full.any():
            starts = batch.bounds[:-1][full]
            tally.rows_by_norm += count(numpy.maximum.reduceat(batch.norm_place, starts), NORM)
            tally.rows_by_loss += count(numpy.maximum.reduceat(batch.loss_place, starts), LOSS)
        empty = int((~full).sum())
        tally.rows_by_norm[0] += empty
        tally.rows_by_loss[0] += empty

    def _choose(self, batch: Batch, norms: Floats) -> None:
        def lowest(values: Floats) -> Floats:
            return -aggregate(-values, batch.bounds, "max")

        highest = aggregate(norms, batch.bounds, "max")
        keys: dict[str, NDArray[Any]] = {
            "random": batch.lot,
            "norm_max": -highest,
            "norm_mean": -batch.norm_mean,
            "nll_mean": -aggregate(batch.nlls.astype(numpy.float64), batch.bounds, "mean"),
            "near_yellow": lowest(numpy.abs(norms - YELLOW)),
            "near_red": lowest(numpy.abs(norms - RED)),
            "clean": batch.norm_mean,
        }
        for name, key in keys.items():
            self.best[name].offer(batch.row, key)
        level = numpy.where(numpy.isfinite(highest), highest, -1) // STRATUM
        self.best["levels"].offer(batch.row, batch.lot, level)
        self.spare.offer(batch.row, batch.lot)

    def chosen(self, shown: Callable[[Grouping], list[int]]) -> dict[int, int]:
        """Rows in the order of their importance, with the reasons as bits."""
        queues = {name: best.rows() for name, best in self.best.items()}
        per_group: list[list[int]] = []
        for grouping in self.groupings.all():
            numbers = shown(grouping)
            per_group += [grouping.random.rows(numbers), grouping.worst.rows(numbers)]
        queues["groups"] = list(in_turn(per_group))
        bits: dict[int, int] = {}
        for bit, name in enumerate(REASONS):
            for row in queues[name]:
                bits[row] = bits.get(row, 0) | 1 << bit
        order = [*in_turn(queues.values()), *self.spare.rows()]
        return {row: bits.get(row, 0) for row in list(dict.fromkeys(order))[:MOST_ROWS]}


def gather(rows: Scores, group_by: str | None) -> Gathered:
    """Walk over all rows once; check that none is missing."""
    found = Gathered(None if group_by == BY_LENGTH else group_by)  # lengths are there anyway
    for some in rows.batches(COLUMNS):
        if len(some):
            found.add(some)
    tally, expected = found.tally, int(rows.meta["used"])
    if tally.rows != expected:
        raise DataError(f"the table has {tally.rows} rows and its meta.json says {expected}; {AGAIN}")
    if rows.meta["records"] != expected + rows.meta["quarantined"]:
        raise DataError(f"meta.json: records are not used + quarantined; {AGAIN}")
    numbers = max(tally.tokens - tally.undefined, 1)
    tally.norm_mean, tally.loss_mean = tally.norm_mean / numbers, tally.loss_mean / numbers
    if found.groupings.named is not None and tally.rows and not found.groupings.found:
        name, there = found.groupings.named.name[:80], sorted(found.groupings.seen)
        raise ValueError(
            f"no record has a field {name!r}{near(name, there)}; there are: {', '.join(there[:12]) or 'none'}"
        )
    return found
