from __future__ import annotations

import math

from ..objectives import Objective, method, require, reweight
from ..starts import Start, delayed

SCALE = math.log(20)  # the entropy of twenty equally likely tokens


@method
def eaft(alpha: float = 1.0, *, start: Start = 0) -> Objective:
    """Entropy-adaptive fine-tuning: weigh each token by how undecided the model is.

        loss = -min(1, H(p) / log 20)^alpha log p(y),   H taken as a constant

    Where the model is sure, its weight is near 0 whether the target agrees or not. Two public versions exist: one
    takes the entropy among the 20 likeliest tokens, the other divides it by 3 as well, so they differ by 3^alpha. Ours
    takes the entropy of the whole vocabulary, divided by log 20 (about 3), and no weight exceeds 1.

    Args:
        alpha: Sharpness. Its authors use 1.
        start: Optimizer step from which to weigh, or "auto": once the model is warm; likelihood before.

    Example:
        >>> eaft().needs
        frozenset({'entropy'})

    Reference: "Entropy-Adaptive Fine-Tuning: Resolving Confident Conflicts to Mitigate Forgetting", 2026
    (arXiv 2601.02151).
    """
    require(alpha >= 0, f"alpha={alpha} would weigh sure tokens up without bound: give 0 or more")
    soft = reweight(lambda stats, now: (stats.entropy / SCALE).clamp(0, 1) ** alpha, frozenset({"entropy"}))
    return delayed(soft, start)
