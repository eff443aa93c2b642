from __future__ import annotations

from .. import scores
from ..context import Context
from ..objectives import Objective, Weighed, keep_all, method
from ..openings import disputed, hardness
from ..running import Mean, State
from ..starts import Start, delayed
from ..stats import TokenStats

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
        layout = now.layout
        rests = layout.sum(stats.nll) - stats.nll[layout.openings]
        hard = hardness(rests, layout.lengths, _LEVEL.value(state))
        dropped = disputed(stats.error_norm[layout.openings], hard)
        weights = (~layout.spread(dropped, "sequence")).to(stats.nll.dtype)
        return Weighed(weights, None, _LEVEL.observe(stats.nll, state))

    objective = Objective(
        weigh, lambda state, now: keep_all, init=_LEVEL.init, settle=_LEVEL.settle, needs=scores.error_norm.needs
    )
    return delayed(objective, start)
