from __future__ import annotations

from .. import scores
from ..cutoffs import Scope, fraction_of
from ..objectives import Guard, Objective, method, require_choice, require_share, truncate
from ..starts import Start, delayed
from ..units import Unit


@method
def ent_fraction(
    fraction: float = 0.1,
    unit: Unit = "token",
    scope: Scope = "batch",
    *,
    start: Start = 0,
    keep_first: int = 0,
    max_dropped: float = 1.0,
) -> Objective:
    """Error Norm Truncation, fraction: drop the share of the tokens with the largest error norm.

        loss = -log p(y) if ||p - onehot(y)||_2 is not among the top fraction, else 0

    A token is dropped when the model is confident that it should be another one, not merely surprised. Exactly
    floor(fraction * tokens) are dropped in the scopes "batch" and "global", ties by position. A fraction also
    drops tokens where nothing is noisy: on clean text prefer `ent_auto`, a threshold, or likelihood. It serves
    generation, at the price of the likelihood of clean text, whose rare words it drops.

    Args:
        fraction: Share to drop. The paper trains with 0.1.
        unit: "token" (the paper), or "sequence": whole sequences by their mean error norm.
        scope: Of what the fraction is taken. "batch": this micro-batch on this rank, as in the paper. "global": this
            micro-batch over all ranks, exactly. "running": a histogram of the previous steps over all ranks and
            micro-batches, so that the result does not depend on how the batch is split.
        start: Optimizer step from which to truncate, or "auto": once the model is warm; likelihood before. The
            paper tries 0, 100, 200, 500, 1000.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> ent_fraction(0.2, start=500)
        ent_fraction(fraction=0.2, unit='token', scope='batch', start=500, keep_first=0, max_dropped=1.0)

    Reference: Li, Xu, Koehn, Khashabi, Murray, "Error Norm Truncation", ICLR 2024 (ENT-Fraction).
    """
    require_share("fraction", fraction)
    require_choice("unit", unit, "token", "sequence")
    require_choice("scope", scope, "batch", "global", "running")
    cutoff = fraction_of(fraction, scope, scores.error_norm.bounds)
    return delayed(truncate(scores.error_norm, cutoff, unit, Guard(keep_first, max_dropped)), start)
