from __future__ import annotations

from dataclasses import replace

import torch

from ..objectives import Objective, method, require
from ..starts import delayed
from .mle import mle


@method
def generalized_ce(q: float = 0.7, *, start: int = 0) -> Objective:
    """Generalized cross-entropy: between likelihood and mean absolute error, which tolerates wrong labels.

        loss = (1 - p(y)^q) / q

    Args:
        q: Towards 0 likelihood, at 1 mean absolute error. Its authors use 0.7.
        start: Optimizer step from which it applies; likelihood before.

    Example:
        >>> generalized_ce()
        generalized_ce(q=0.7, start=0)

    Reference: Zhang and Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy
    Labels", NeurIPS 2018.
    """
    require(0 < q <= 1, f"q={q} is outside of its range: give a number above 0, and 1 at most")
    return delayed(
        replace(mle(), combine=lambda stats, weights, now: -weights * torch.expm1(-q * stats.nll) / q), start
    )
