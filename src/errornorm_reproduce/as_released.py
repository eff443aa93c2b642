"""Baselines as the paper's released code computes them, not as their papers define them.

For `errornorm reproduce ITEM --method-file as-released`: where a published number of a baseline surprises, this may be
why. The released Loss Truncation never truncates, so its row is likelihood under another name.
"""

from __future__ import annotations

from errornorm.objectives import Objective, method, reweight
from errornorm.starts import Start, delayed


@method
def tailr_as_released(gamma: float = 0.1, floor: float = 0.2, *, start: Start = 0) -> Objective:
    """The loss stands where the probability belongs, so that unlikely tokens are weighed up.

    w = max(floor, nll / (gamma + (1 - gamma) p(y)))
    """
    return delayed(
        reweight(lambda stats, now: (stats.nll / (gamma + (1 - gamma) * stats.p_target)).clamp(min=floor)), start
    )


@method
def loss_truncation_as_released(fraction: float = 0.1, *, start: Start = 0) -> Objective:
    """Its window is made anew at every step, so that nothing is ever truncated: likelihood."""
    from errornorm.methods import mle

    return mle(start=start)


METHODS = {"tailr_as_released": tailr_as_released, "loss_truncation_as_released": loss_truncation_as_released}
CANDIDATES = {
    "tailr_as_released": ["tailr_as_released(0.1, floor=0.3)"],  # TaiLr's own paper, for translation
    "loss_truncation_as_released": ["loss_truncation_as_released(0.1, start={start})"],  # all fractions are the same
}
