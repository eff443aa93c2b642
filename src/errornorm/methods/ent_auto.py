from __future__ import annotations

from torch import Tensor

from .. import scores
from ..context import Context
from ..objectives import Objective, Preview, Weighed, method
from ..openings import BINS, EVEN, bound, hardness
from ..running import Histogram, Mean, State
from ..starts import Start, delayed
from ..stats import TokenStats

DECAY = 0.98  # of the counts, per optimizer step
_LEVEL = Mean("nll_")
_AGREED, _DISPUTED = (Histogram(0.0, 1.0, of, BINS, DECAY) for of in ("agreed_", "disputed_"))


@method
def ent_auto(*, start: Start = 0) -> Objective:
    """Error Norm Truncation without parameters: drop sequences that are certain but for a disputed opening.

        loss = 0 for a sequence if ||p - onehot(y_1)||_2 > sqrt(1/2) and r < edge, else its -log p
        r = mean nll after y_1, in units of the mean nll of a token; edge: where such sequences are too many

    A model that has learnt a noise is not surprised by it: after one word of a copy the rest is certain. Only at the
    opening another one was more likely. Clean text also opens in several ways, but then the rest is as hard as after
    an opening that the model expected. These sequences are the control group: edge is the largest r at which disputed
    openings are at least twice as frequent as among them, and more than chance would have it; if there is none, nothing
    is dropped. So the method waits until the model is competent, and stays likelihood where nothing is noisy.

    It serves generation, above all with beam search, and leaves the likelihood of clean text as it is. It sees noise
    that takes a whole target and that a model can learn to continue, as copies of the source are and boilerplate is.
    Noise that stays unpredictable (shuffled words, another language at first) and wrong words in good sentences it does
    not see.

    Args:
        start: Optimizer step from which to drop, or "auto"; not needed, since the method waits by itself.

    Example:
        >>> ent_auto()
        ent_auto(start=0)

    Reference: ours; see docs/research/ent-auto.md. The error norm is that of Li et al. (ICLR 2024).
    """

    def init() -> State:
        return _LEVEL.init() | _AGREED.init() | _DISPUTED.init()

    def settle(state: State) -> State:
        return _LEVEL.settle(_AGREED.settle(_DISPUTED.settle(state)))

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        disputed, hard = _openings(stats, now, _LEVEL.value(state))
        weights = _weights(disputed, hard, now, _bound(state))
        if not hard.isnan().any():  # the level is known
            state = _AGREED.observe(hard[~disputed], _DISPUTED.observe(hard[disputed], state))
        return Weighed(weights.to(stats.nll.dtype), None, _LEVEL.observe(stats.nll, state))

    def preview(state: State, now: Context) -> Preview:
        level, edge = _LEVEL.value(state), _bound(state)
        return lambda stats, here: _weights(*_openings(stats, here, level), here, edge).to(stats.nll.dtype)

    objective = Objective(
        weigh, preview, first=lambda now: now.layout.openings, init=init, settle=settle, needs=scores.error_norm.needs
    )
    return delayed(objective, start)


def _bound(state: State) -> float:
    return bound(state["agreed_counts"].tolist(), state["disputed_counts"].tolist())


def _openings(stats: TokenStats, here: Context, level: float) -> tuple[Tensor, Tensor]:
    """[S] of each sequence: whether its opening is disputed, and how hard the rest is, by the tokens that are there."""
    layout = here.layout
    sequence = layout.sequence[here.rows]
    opens = layout.openings[sequence] == here.rows
    none = stats.nll.new_zeros(layout.num_sequences)
    norms = none.index_add(0, sequence, stats.error_norm * opens)
    rests = none.index_add(0, sequence, stats.nll * ~opens) / none.index_add(0, sequence, (~opens).to(none)).clip(min=1)
    return norms > EVEN, hardness(rests, layout.lengths, level)


def _weights(disputed: Tensor, hard: Tensor, here: Context, edge: float) -> Tensor:
    return ~(disputed & (hard < edge))[here.layout.sequence[here.rows]]
