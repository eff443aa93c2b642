from __future__ import annotations

from dataclasses import replace

from ..objectives import Objective, method, require_share, reweight
from ..starts import Start, delayed


@method
def tailr(gamma: float = 0.1, floor: float = 0.2, *, start: Start = 0) -> Objective:
    """TaiLr: weigh tokens down by their own probability, softly.

        loss = -w log p(y),   w = max(floor, p(y) / (gamma + (1 - gamma) p(y)))

    The label-smoothing term, if there is one, is not weighed (as its authors do).

    Args:
        gamma: 0 is likelihood, 1 weighs by p(y) itself. Its authors: 0.1 (IWSLT), 0.8 (Gigaword), 1e-7 (long text);
            the ENT paper tunes 0.1, 0.5, 1.
        floor: Smallest weight. Its authors: 0.3 (IWSLT), 0.2 elsewhere; the ENT paper tunes 0.1, 0.2, 0.3.
        start: Optimizer step from which to weigh, or "auto": once the model is warm; likelihood before.

    Example:
        >>> tailr(gamma=0.5)
        tailr(gamma=0.5, floor=0.2, start=0)

    Reference: Ji et al., "Tailoring Language Generation Models under Total Variation Distance", ICLR 2023.
    """
    require_share("gamma", gamma)
    require_share("floor", floor)
    soft = reweight(lambda stats, now: (stats.p_target / (gamma + (1 - gamma) * stats.p_target)).clamp(floor, 1.0))
    return delayed(replace(soft, weigh_smoothing=False), start)
