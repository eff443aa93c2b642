from __future__ import annotations

from torch import Tensor

from ..context import Context
from ..objectives import Objective, method, require, reweight
from ..starts import Start, delayed
from ..stats import TokenStats


@method
def weighted(*, start: Start = 0) -> Objective:
    """Weights of your own: one number per token, given with the batch.

        loss = -w log p(y)

    Needs the column `token_weight`, in the shape of the targets: 0 drops a token, 1 keeps it.

    Args:
        start: Optimizer step from which to weigh, or "auto": once the model is warm; likelihood before.

    Example:
        >>> weighted().columns
        frozenset({'token_weight'})

    Reference: the plain weighted likelihood.
    """

    def weight(stats: TokenStats, now: Context) -> Tensor:
        given = now.columns["token_weight"]
        require(not bool((given < 0).any()), "token_weight has negative numbers: a weight is 0 or more")
        return given

    return delayed(reweight(weight, columns=frozenset({"token_weight"})), start)
