from __future__ import annotations

from ..objectives import Objective, method, require_share, reweight
from ..starts import Start, delayed


@method
def mixce(eta: float = 0.5, *, start: Start = 0) -> Objective:
    """MixCE: a mixture of forward and (approximate) reverse cross-entropy.

        loss = -(eta + (1 - eta) p(y)) log p(y),   with p(y) in the weight taken as a constant

    Args:
        eta: 1 is likelihood, 0 is `dft`. Its authors tune it per task between 0 and 1.
        start: Optimizer step from which to weigh, or "auto": once the model is warm; likelihood before.

    Example:
        >>> mixce(0.1)
        mixce(eta=0.1, start=0)

    Reference: Zhang et al., "MixCE: Training Autoregressive Language Models by Mixing Forward and Reverse
    Cross-Entropies", ACL 2023.
    """
    require_share("eta", eta)
    return delayed(reweight(lambda stats, now: eta + (1 - eta) * stats.p_target), start)
