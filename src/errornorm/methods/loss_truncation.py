from __future__ import annotations

from .. import scores
from ..cutoffs import LONGEST, window_fraction
from ..objectives import Guard, Objective, method, require, require_share, truncate
from ..starts import Start, delayed


@method
def loss_truncation(
    fraction: float = 0.1,
    window: int = 10_000,
    min_count: int = 1_000,
    *,
    start: Start = 0,
    keep_first: int = 0,
    max_dropped: float = 1.0,
) -> Objective:
    """Loss Truncation: drop the sequences with the highest mean loss, by a running quantile.

        loss = -log p(sequence) if its mean nll <= quantile(last 10,000 sequences, 1 - fraction), else 0

    The window is shared by all ranks, is part of the checkpoint, and never sees evaluation data.

    Args:
        fraction: Share of the sequences to drop. Its authors use 0.4; the ENT paper tunes 0.05, 0.1, 0.2.
        window: How many of the latest sequences the quantile is taken of.
        min_count: Nothing is dropped before this many were seen.
        start: Optimizer step from which to truncate, or "auto": once the model is warm; likelihood before.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> loss_truncation(0.05).columns
        frozenset()

    Reference: Kang and Hashimoto, "Improved Natural Language Generation via Loss Truncation", ACL 2020.
    """
    require_share("fraction", fraction)
    require(0 < window <= LONGEST, f"window={window} is a number of sequences: give 1 to {LONGEST:,}")
    require(0 <= min_count <= window, f"min_count={min_count} must lie between 0 and window={window}")
    cutoff = window_fraction(fraction, window, min_count)
    return delayed(truncate(scores.nll, cutoff, "sequence", Guard(keep_first, max_dropped)), start)
