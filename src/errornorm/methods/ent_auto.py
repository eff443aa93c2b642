from __future__ import annotations

import math

from torch import Tensor

from .. import scores
from ..context import Context
from ..objectives import Objective, Weighed, keep_all, method
from ..running import Mean, State
from ..starts import Start, delayed
from ..stats import TokenStats
from ..units import Layout

EVEN = math.sqrt(0.5)  # the error norm of a token at even odds against one other
_LEVEL = Mean("nll_")


@method
def ent_auto(*, start: Start = 0) -> Objective:
    """Error Norm Truncation without parameters: drop a sequence that is certain but for a disputed opening.

        loss = 0 for the sequence if ||p - onehot(y_1)||_2 > sqrt(1/2) + r/2, else its -log p
        r = mean nll after y_1, in units of the mean nll of all tokens of the last steps; at most 1

    A model that has learnt a noise is not surprised by it: after one word of a copy the rest is certain. Only the
    opening, where another one was expected, still speaks against it. Both questions of truncation are asked of each
    sequence by itself. Is the model competent to judge it? If it knows what follows. Is it noise? If the opening is
    disputed: before a certain rest even odds against one other token are enough (a norm of sqrt(1/2)), before an
    average one the model must be sure of another (1.21). A new model is certain of nothing, and nothing is dropped; a
    row of a language model opens anywhere, and hardly anything is.

    It serves generation, above all with beam search, and leaves the likelihood of clean text as it is. It sees noise
    that takes a whole target and that a model can learn: copies, text in another language, boilerplate. Wrong words
    in good sentences it does not see.

    Args:
        start: Optimizer step from which to drop, or "auto"; not needed, since the method waits by itself.

    Example:
        >>> ent_auto()
        ent_auto(start=0)

    Reference: ours; see docs/research/ent-auto.md. The error norm is that of Li et al. (ICLR 2024).
    """

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        level = _LEVEL.value(state)
        norm = stats.error_norm[now.layout.openings]
        dropped = norm > EVEN + 0.5 * _rest(stats.nll, level, now.layout)
        weights = (~dropped)[now.layout.sequence].to(stats.nll.dtype)
        return Weighed(weights, None, _LEVEL.observe(stats.nll, state))

    objective = Objective(
        weigh, lambda state, now: keep_all, init=_LEVEL.init, settle=_LEVEL.settle, needs=scores.error_norm.needs
    )
    return delayed(objective, start)


def _rest(nll: Tensor, level: float, layout: Layout) -> Tensor:
    """[S] how hard a sequence is after its first token, of an average token; as if one such token followed it."""
    total = nll.new_zeros(layout.num_sequences).index_add_(0, layout.sequence, nll) - nll[layout.openings]
    return ((total / level + 1) / layout.lengths).clamp(max=1.0)
