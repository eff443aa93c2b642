from __future__ import annotations

from .. import scores
from ..cutoffs import Scope, fraction_of
from ..objectives import Guard, Objective, method, require_choice, require_share, truncate
from ..starts import Start, delayed
from ..units import Unit


@method
def token_loss_truncation(
    fraction: float = 0.1,
    unit: Unit = "token",
    scope: Scope = "batch",
    *,
    start: Start = 0,
    keep_first: int = 0,
    max_dropped: float = 1.0,
) -> Objective:
    """Drop the share of the tokens with the highest loss: `ent_fraction` with the loss in place of the error norm.

        loss = -log p(y) if -log p(y) is not among the top fraction, else 0

    The control that tells whether the error norm, and not truncation as such, makes the difference.

    Args:
        fraction: Share to drop.
        unit: "token", or "sequence": whole sequences by their mean loss.
        scope: Of what the fraction is taken: "batch", "global" or "running", as in `ent_fraction`.
        start: Optimizer step from which to truncate, or "auto": once the model is warm; likelihood before.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> token_loss_truncation(0.05).needs
        frozenset()

    Reference: a control of ours; by Li et al. (ICLR 2024) the loss ranks tokens as the l1 error norm does.
    """
    require_share("fraction", fraction)
    require_choice("unit", unit, "token", "sequence")
    require_choice("scope", scope, "batch", "global", "running")
    cutoff = fraction_of(fraction, scope, scores.nll.bounds)
    return delayed(truncate(scores.nll, cutoff, unit, Guard(keep_first, max_dropped)), start)
