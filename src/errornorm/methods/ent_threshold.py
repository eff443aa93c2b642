from __future__ import annotations

from dataclasses import replace

from .. import scores
from ..cutoffs import fixed
from ..objectives import Guard, Objective, method, require, truncate
from ..starts import Start, delayed
from ..stats import ERROR_NORM_MAX


@method
def ent_threshold(
    threshold: float = 1.38, *, start: Start = 0, keep_first: int = 0, max_dropped: float = 1.0
) -> Objective:
    """Error Norm Truncation, threshold: drop the tokens whose error norm is above a fixed number.

        loss = -log p(y) if ||p - onehot(y)||_2 <= threshold, else 0

    The norm lies between 0 and the root of 2. It exceeds 1 only when another token is likelier, and 1.38 only when the
    model gives one wrong token about 95 %; so a model that is trained from scratch drops nothing at first, and needs
    no start step. A pretrained one that does not know the task yet is sure of other tokens: give it one. A model that
    is calibrated to label smoothing 0.1 does not exceed 1.345, nor one that fits 30 % noise about 1.22: lower the
    threshold there. Down to about 1.3 it leaves the likelihood of clean text nearly as it is; lower ones serve
    generation.

    Args:
        threshold: Largest error norm that is kept. The paper tunes 1.35, 1.38, 1.4 (a wrong token of at least 91,
            95, 98 %).
        start: Optimizer step from which to truncate, or "auto": once the model is warm; likelihood before.
        keep_first: Never drop the first scored tokens of a sequence.
        max_dropped: Never drop more than this share of a sequence.

    Example:
        >>> ent_threshold(1.2)
        ent_threshold(threshold=1.2, start=0, keep_first=0, max_dropped=1.0)

    Reference: Li, Xu, Koehn, Khashabi, Murray, "Error Norm Truncation", ICLR 2024 (ENT-Threshold).
    """
    require(
        0 < threshold < ERROR_NORM_MAX,
        f"threshold={threshold} can never separate anything: error norms lie between 0 and 1.414",
    )
    objective = truncate(scores.error_norm, fixed(threshold), guard=Guard(keep_first, max_dropped))
    return delayed(replace(objective, norm_threshold=threshold), start)
