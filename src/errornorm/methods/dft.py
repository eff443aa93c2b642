from __future__ import annotations

from ..objectives import Objective, delayed, method, reweight


@method
def dft(*, start: int = 0) -> Objective:
    """Dynamic fine-tuning: weigh each token by its own probability.

        loss = -p(y) log p(y),   with p(y) taken as a constant

    Args:
        start: Optimizer step from which to weigh; likelihood before.

    Example:
        >>> dft()
        dft(start=0)

    Reference: Wu et al., "On the Generalization of SFT: A Reinforcement Learning Perspective with Reward
    Rectification", 2025.
    """
    return delayed(reweight(lambda stats, now: stats.p_target), start)
