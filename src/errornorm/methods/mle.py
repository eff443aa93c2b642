from __future__ import annotations

import torch

from ..objectives import Objective, method, reweight
from ..starts import Start, delayed


@method
def mle(*, start: Start = 0) -> Objective:
    """Maximum likelihood: every token counts the same. The baseline, through the same kernels as everything else.

        loss = -log p(y)

    Args:
        start: As in every method; likelihood before and after makes no difference.

    Example:
        >>> mle()
        mle(start=0)

    Reference: the objective of ordinary training.
    """
    return delayed(reweight(lambda stats, now: torch.ones_like(stats.nll)), start)
