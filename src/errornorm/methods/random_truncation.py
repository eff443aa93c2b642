from __future__ import annotations

from .. import scores
from ..cutoffs import top_fraction
from ..objectives import Guard, Objective, method, require_choice, require_share, truncate
from ..starts import Start, delayed
from ..units import Unit


@method
def random_truncation(
    fraction: float = 0.1,
    unit: Unit = "token",
    seed: int = 0,
    *,
    start: Start = 0,
    keep_first: int = 0,
    max_dropped: float = 1.0,
) -> Objective:
    """Drop a random share of the tokens: the control that every claim about truncation needs.

        loss = -log p(y) if chance keeps the token, else 0

    Exactly floor(fraction * units) are dropped. The draw depends on the seed and on how many batches were seen, so
    that a resumed run goes on as if it had not stopped.

    Args:
        fraction: Share to drop.
        unit: "token" or "sequence".
        seed: Of the draw.
        start: Optimizer step from which to truncate, or "auto": once the model is warm; likelihood before.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> random_truncation(0.2).needs
        frozenset()

    Reference: the random pruning that Li et al., "Error Norm Truncation", ICLR 2024, compare with (there of sentences).
    """
    require_share("fraction", fraction)
    require_choice("unit", unit, "token", "sequence")
    score = scores.chance(seed, unit)
    return delayed(truncate(score, top_fraction(fraction), unit, Guard(keep_first, max_dropped)), start)
