from __future__ import annotations

from dataclasses import replace

import torch

from ..objectives import Objective, method, require
from ..starts import delayed
from .mle import mle


@method
def focal(gamma: float = 2.0, *, start: int = 0) -> Objective:
    """Focal loss: tokens that are already likely count less. The opposite bet to truncation.

        loss = -(1 - p(y))^gamma log p(y)

    Args:
        gamma: 0 is likelihood. Its authors use 2.
        start: Optimizer step from which it applies; likelihood before.

    Example:
        >>> focal(1.0)
        focal(gamma=1.0, start=0)

    Reference: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017.
    """
    require(gamma >= 0, f"gamma={gamma} would favour easy tokens without bound: give 0 or more")

    def rest(nll: torch.Tensor) -> torch.Tensor:
        return (-torch.expm1(-nll)).clamp_min(torch.finfo(nll.dtype).tiny)

    return delayed(
        replace(mle(), combine=lambda stats, weights, now: weights * rest(stats.nll) ** gamma * stats.nll),
        start,
    )
