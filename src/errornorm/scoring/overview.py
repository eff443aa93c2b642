"""A table of scores in a few numbers."""

from __future__ import annotations

import math

from . import rank
from .checks import STATISTICS
from .table import Scores


def overview(scores: Scores) -> list[tuple[str, str, str]]:
    """Rows for a table: over all tokens."""
    totals, highest, above = dict.fromkeys(STATISTICS, 0.0), dict.fromkeys(STATISTICS, -math.inf), 0
    for batch in scores.batches(STATISTICS):
        for name in STATISTICS:
            values = rank.lists(batch[name])[0]
            totals[name] += float(values.sum(dtype=float))
            highest[name] = max(highest[name], float(values.max(initial=-math.inf)))
        above += int((rank.lists(batch["error_norm"])[0] > scores.meta["settings"]["cutoff"]).sum())
    num = scores.meta["tokens"]
    shown = [(name, f"{totals[name] / num:.3f}", f"{highest[name]:.3f}") for name in ("nll", "error_norm", "entropy")]
    return [*shown, (f"error norm above {scores.meta['settings']['cutoff']:g}", f"{above / num:.1%}", "-")]
