from __future__ import annotations

from .. import scores
from ..cutoffs import top_fraction
from ..objectives import Guard, Objective, method, require_share, truncate
from ..starts import Start, delayed


@method
def rho1(keep: float = 0.6, *, start: Start = 0, keep_first: int = 0, max_dropped: float = 1.0) -> Objective:
    """Rho-1, selective language modelling: keep the tokens with the largest excess loss over a reference model.

        loss = -log p(y) if -log p(y) + log p_ref(y) is among the top `keep`, else 0

    Needs the column `ref_nll`, the reference model's -log p(y) of each target.

    Args:
        keep: Share of the tokens that is trained on. Its authors use 0.6 and 0.7.
        start: Optimizer step from which to select, or "auto": once the model is warm; likelihood before.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> rho1(0.7).columns
        frozenset({'ref_nll'})

    Reference: Lin et al., "Rho-1: Not All Tokens Are What You Need", NeurIPS 2024.
    """
    require_share("keep", keep)
    cutoff = top_fraction(round(1 - keep, 12))  # 1 - 0.9 is a little less than 0.1
    return delayed(truncate(scores.lack_of_excess, cutoff, guard=Guard(keep_first, max_dropped)), start)
