from __future__ import annotations

from ..objectives import Objective, method, reweight
from ..starts import Start, delayed


@method
def dft(*, start: Start = 0) -> Objective:
    """Dynamic fine-tuning: weigh each token by its own probability.

        loss = -p(y) log p(y),   with p(y) taken as a constant

    Args:
        start: Optimizer step from which to weigh, or "auto": once the model is warm; likelihood before.

    Example:
        >>> dft()
        dft(start=0)

    Reference: Wu et al., "On the Generalization of SFT: A Reinforcement Learning Perspective with Reward
    Rectification", 2025.
    """
    return delayed(reweight(lambda stats, now: stats.p_target), start)
