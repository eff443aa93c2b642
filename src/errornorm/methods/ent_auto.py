from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import scores
from ..context import Context
from ..objectives import Objective, Preview, Weighed, keep_all, method
from ..openings import BINS, EVEN, FOUND, excess, hardness, suspicious
from ..running import Histogram, Mean, State
from ..starts import Start, delayed
from ..stats import TokenStats

DECAY = 0.98  # of the counts, per optimizer step
_LEVEL = Mean("nll_")
_AGREED, _DISPUTED = (Histogram(0.0, 1.0, of, BINS, DECAY) for of in ("agreed_", "disputed_"))


@method
def ent_auto(*, start: Start = 0) -> Objective:
    """Error Norm Truncation without parameters: drop sequences that are certain but for a disputed opening.

        loss = 0 for a sequence if noise was found and ||p - onehot(y_1)||_2 > sqrt(1/2) + r/2, else its -log p
        r = mean nll after y_1, in units of the mean nll of a token; at most 1

    A model that has learnt a noise is not surprised by it: after one word of a copy the rest is certain. Only at the
    opening another word was more likely. Clean text also opens in several ways, but then the rest is as hard as after
    an opening that the model expected. These sequences are the control group: noise is found when certain text follows
    disputed openings at least twice as often, by 2 % of all sequences. So the method waits until the model is
    competent, and is likelihood, exactly, where there is no such noise. Once it is found, it stays so.

    It serves generation, above all with beam search, and leaves the likelihood of clean text as it is. It sees noise
    that takes a whole target and that a model can learn to continue, as copies of the source are and boilerplate is;
    not shuffled words, nor wrong words in good sentences.

    It is made for free text, as in translation. Text that has one of a few fixed forms and is wanted, it may take for
    noise: extractive summaries, canned answers, long names of classes (targets of fewer than 5 tokens are safe). And
    the first label must be text: behind a tag that is always the same it finds nothing, and of tags that differ from
    text to text, as those of several languages, it may drop the rare ones.

    Args:
        start: Optimizer step from which to drop, or "auto"; not needed, since the method waits by itself.

    Example:
        >>> ent_auto()
        ent_auto(start=0)

    Reference: ours; see docs/research/ent-auto.md. The error norm is that of Li et al. (ICLR 2024).
    """

    def init() -> State:
        found = torch.zeros((), dtype=torch.bool, device="cpu")
        return _LEVEL.init() | _AGREED.init() | _DISPUTED.init() | {"found": found}

    def settle(state: State) -> State:
        state = _LEVEL.settle(_AGREED.settle(_DISPUTED.settle(state)))
        more = excess(state["agreed_counts"].tolist(), state["disputed_counts"].tolist())
        return state | {"found": state["found"] | (more >= FOUND)}

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        level = _LEVEL.value(state)
        norms, hard = _openings(stats, now, level)
        weights = _weights(norms, hard, now) if state["found"] else torch.ones_like(stats.nll)
        if not math.isnan(level):
            state = _AGREED.observe(hard[norms <= EVEN], _DISPUTED.observe(hard[norms > EVEN], state))
        return Weighed(weights, None, _LEVEL.observe(stats.nll, state))

    def preview(state: State, now: Context) -> Preview:
        level = _LEVEL.value(state)
        return (lambda stats, here: _weights(*_openings(stats, here, level), here)) if state["found"] else keep_all

    def first(state: State, now: Context) -> Tensor | None:
        return now.layout.openings if state["found"] else None

    return delayed(Objective(weigh, preview, first, init=init, settle=settle, needs=scores.error_norm.needs), start)


def _openings(stats: TokenStats, here: Context, level: float) -> tuple[Tensor, Tensor]:
    """[S] of each sequence: the error norm of its opening, and how hard the rest is, by the tokens that are there."""
    layout = here.layout
    sequence = layout.sequence[here.rows]
    opens = layout.openings[sequence] == here.rows
    none = stats.nll.new_zeros(layout.num_sequences)
    norms = none.index_add(0, sequence, stats.error_norm * opens)
    rests = none.index_add(0, sequence, stats.nll * ~opens) / none.index_add(0, sequence, (~opens).to(none)).clip(min=1)
    return norms, hardness(rests, layout.lengths, level)


def _weights(norms: Tensor, hard: Tensor, here: Context) -> Tensor:
    kept: Tensor = ~suspicious(norms, hard)
    return kept[here.layout.sequence[here.rows]].to(norms.dtype)
