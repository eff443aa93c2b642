from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .. import scores
from ..context import Context
from ..objectives import Objective, Preview, Weighed, keep_all, method
from ..openings import (
    BINS,
    DECAY,
    EVEN,
    FOUND,
    LEAST,
    ease,
    excess,
    hardest,
    hardness,
    lasts,
    learnt,
    rivals,
    suspicious,
)
from ..running import Histogram, Moments, State
from ..starts import Start, delayed
from ..stats import TokenStats

_LEVEL = Moments("nll_")
_AGREED, _DISPUTED = (Histogram(0.0, 1.0, of, BINS, DECAY) for of in ("agreed_", "disputed_"))
_AFTER_AGREED, _AFTER_RIVALS = (Moments(of, DECAY) for of in ("after_agreed_", "after_rivals_"))
_PARTS = (_LEVEL, _AGREED, _DISPUTED, _AFTER_AGREED, _AFTER_RIVALS)


@method
def ent_auto(*, start: Start = 0) -> Objective:
    """Error Norm Truncation without parameters: drop sequences that are certain but for a disputed opening.

        loss = 0 for a sequence if noise was found and ||p - onehot(y_1)||_2 > sqrt(1/2) + r/2, else its -log p
        r = mean nll after y_1, in units of the mean nll of a token; at most 1

    A model that has learnt a noise is not surprised by it: after one word of a copy the rest is certain. Only at the
    opening another word was more likely. Clean text also opens in several ways, but then the rest is as hard as after
    an opening that the model expected. These sequences are the control group. Noise is found when certain text follows
    disputed openings at least twice as often, by 2 % of all sequences, in three quarters of the steps so far and in at
    least 200: text of a fixed form that is being learnt shows for a shorter time. Or, mostly before that, when text
    after *rivals* (openings that the model knows, with 5 % or more, while another one has even odds) becomes easier
    than it ever was and than in the control group, by a fifth of the deviation between texts. So the method waits until
    the model is competent, and is likelihood, exactly, where there is no such noise. Once it is found, it stays so.

    It serves generation, above all with beam search, and leaves the likelihood of clean text as it is. It sees noise
    that takes a whole target and that a model can learn to continue, as copies of the source are and boilerplate is;
    not shuffled words, nor wrong words in good sentences.

    It is made for free text, as in translation. Text that has one of a few fixed forms and is wanted, it may take for
    noise: extractive summaries, canned answers, long names of classes (targets of fewer than 5 tokens are
    no evidence, and dropped only where the model is sure of another opening). And the first label must be text: behind
    a tag that is always the same it finds nothing, and of tags that differ from text to text, as those of several
    languages, it may drop the rare ones.

    Args:
        start: Optimizer step from which to drop, or "auto"; not needed, since the method waits by itself.

    Example:
        >>> ent_auto()
        ent_auto(start=0)

    Reference: ours; see docs/research/ent-auto.md. The error norm is that of Li et al. (ICLR 2024).
    """

    def init() -> State:
        hardest_so_far = torch.full((), math.inf, dtype=torch.float64, device="cpu")
        certain_of_all = torch.zeros(2, dtype=torch.float64, device="cpu")
        found = torch.zeros((), dtype=torch.bool, device="cpu")
        sums = {name: value for part in _PARTS for name, value in part.init().items()}
        return sums | {"hardest": hardest_so_far, "certain_steps": certain_of_all, "found": found}

    def settle(state: State) -> State:
        for part in _PARTS:
            state = part.settle(state)
        agreed, disputed = (state[f"{of}_counts"].tolist() for of in ("agreed", "disputed"))
        after, rival = (state[f"after_{of}_sums"].tolist() for of in ("agreed", "rivals"))
        easier, error = ease(after, rival)
        lowest = hardest(float(state["hardest"]), easier, error)
        share = rival[0] / max(1, sum(agreed) + sum(disputed))
        steps = state["certain_steps"] + torch.tensor([excess(agreed, disputed) >= FOUND, 1.0], device="cpu")
        now = lasts(*steps.tolist()) or learnt(lowest, easier, error, share)
        seen = {"hardest": torch.full_like(state["hardest"], lowest), "certain_steps": steps}
        return state | seen | {"found": state["found"] | now}

    def weigh(stats: TokenStats, state: State, now: Context) -> Weighed:
        level, texts, lengths = _LEVEL.mean(state), _texts(stats, now), now.layout.lengths
        hard = hardness(texts.rest_nll, lengths, level)
        weights = _weights(texts, hard, now) if state["found"] else torch.ones_like(stats.nll)
        if not math.isnan(level):
            agreed, long = texts.norm <= EVEN, lengths >= LEAST
            state = _AGREED.observe(hard[agreed], _DISPUTED.observe(hard[~agreed], state))
            state = _AFTER_AGREED.observe(texts.rest_norm[agreed & long], state)
            state = _AFTER_RIVALS.observe(texts.rest_norm[rivals(texts.off_target, texts.nll) & long], state)
        return Weighed(weights, None, _LEVEL.observe(stats.nll, state))

    def preview(state: State, now: Context) -> Preview:
        level = _LEVEL.mean(state)

        def guess(stats: TokenStats, here: Context) -> Tensor:
            texts = _texts(stats, here)
            return _weights(texts, hardness(texts.rest_nll, here.layout.lengths, level), here)

        return guess if state["found"] else keep_all

    def first(state: State, now: Context) -> Tensor | None:
        return now.layout.openings if state["found"] else None

    return delayed(Objective(weigh, preview, first, init=init, settle=settle, needs=scores.error_norm.needs), start)


class _Texts(NamedTuple):
    """[S] of each sequence: statistics of its opening, and means over the other tokens."""

    nll: Tensor
    norm: Tensor
    off_target: Tensor
    rest_nll: Tensor
    rest_norm: Tensor


def _texts(stats: TokenStats, here: Context) -> _Texts:
    """By the tokens that are there."""
    layout = here.layout
    sequence = layout.sequence[here.rows]
    opens = layout.openings[sequence] == here.rows
    none = stats.nll.new_zeros(3, layout.num_sequences)
    openings = torch.stack([stats.nll, stats.error_norm, stats.off_target]) * opens
    nll, norm, off_target = none.index_add(1, sequence, openings)
    rest = torch.stack([stats.nll, stats.error_norm, torch.ones_like(stats.nll)]) * ~opens
    rest_nll, rest_norm, count = none.index_add(1, sequence, rest)
    return _Texts(nll, norm, off_target, rest_nll / count.clip(min=1), rest_norm / count.clip(min=1))


def _weights(texts: _Texts, hard: Tensor, here: Context) -> Tensor:
    kept: Tensor = ~suspicious(texts.norm, hard)
    return kept[here.layout.sequence[here.rows]].to(texts.norm.dtype)
