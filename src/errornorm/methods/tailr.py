from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..context import Context
from ..objectives import Objective, method, require_share, reweight
from ..starts import Start, delayed
from ..stats import TokenStats


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

    def weight(stats: TokenStats, now: Context) -> Tensor:
        p = stats.p_target.clip(min=torch.finfo(stats.p_target.dtype).tiny)  # 0 / 0 is no weight
        return (p / (gamma + (1 - gamma) * p)).clamp(floor, 1.0)

    soft = reweight(weight)
    return delayed(replace(soft, weigh_smoothing=False), start)
