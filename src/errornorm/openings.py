"""Sequences that are certain but for their opening.

An opening is disputed if the model gave it less than even odds against another one. In clean text that happens where
there are several ways to begin, and what follows is as hard as after any other beginning. Noise that a model has learnt
is different: after a disputed opening the rest is certain. So the sequences with an agreed opening are the control
group: what is certain after a disputed one more often than after these, and stays so, is noise. Text that is wanted and
has a fixed form looks the same while it is learnt, since a model knows how it goes on before it knows when it begins.

Noise that is being learnt shows in the rivals: openings that the model knows (they would be no surprise), while another
one has even odds or more. In clean text these are rare, and what follows is rather harder than after agreed openings,
but for the first steps, when a model knows only common texts. Where it becomes easier, noise is being learnt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

EVEN = math.sqrt(0.5)  # the error norm of a token at even odds against one other
BINS = 20  # of the hardness
SMALLEST = 1e-9  # mean nll of a token
RATIO = 2.0  # how much more frequent than expected certain sequences must be: then at least half of them are too many
SIGMAS = 5.0  # and by how many standard deviations
LEAST = 5  # tokens of a sequence that can be certain; a shorter one may be the name of a class
KNOWN = 0.05  # probability from which on a model knows an opening
EASIER = 0.2  # of the deviation between texts: by so much must those after rivals become easier; clean text: 0.0
MARGIN = 2.0  # standard deviations by which a difference may be too low by chance
ENOUGH = 100  # sequences of a group, to compare it
DECAY = 0.98  # of what was counted, per optimizer step
LONG = 200  # optimizer steps with too many, to call it noise; a fixed text that was learnt showed for up to 83
MOSTLY = 0.75  # of all steps; such a text, in more than half of the steps until it was learnt
FOUND = 0.02  # of all sequences that must be too many to call it noise; text without copies came to 0.01


def hardness(rests: Any, lengths: Any, level: float) -> Any:
    """How hard sequences are after their first token, of an average token: from 0 to 1, which is "as any".

    It is as if one more average token followed, so that little text says little; fewer than 5 tokens say nothing.

    Args:
        rests: Mean nll of all tokens but the first; a tensor or an array with an entry for each sequence.
        lengths: Tokens, the first one included.
        level: Mean nll of a token.
    """
    hard = ((rests / max(level, SMALLEST) * (lengths - 1) + 1) / lengths).clip(max=1.0)
    return hard + (1 - hard) * (lengths < LEAST)


def suspicious(norms: Any, hard: Any) -> Any:
    """Whether openings with these error norms stand against what follows them: before a certain rest even odds are
    enough, before an average one the model must be sure of another token (a norm of 1.21)."""
    return norms > EVEN + 0.5 * hard


def excess(agreed: Sequence[float], disputed: Sequence[float]) -> float:
    """The share of sequences that are certain after a disputed opening, beyond what agreed ones let expect.

    Args:
        agreed: How many sequences with an agreed opening there are, by hardness, in bins of equal width.
        disputed: The same with a disputed one.

    Example:
        >>> excess([10] * 20, [10] * 20)
        0.0
        >>> round(excess([10] * 20, [100] * 6 + [10] * 14), 2)
        0.4
    """
    most, (all_agreed, all_disputed) = 0.0, (sum(agreed), sum(disputed))
    for end in range(1, len(agreed)):
        expected = all_disputed * (sum(agreed[:end]) + 1) / (all_agreed + 1)
        deviation = math.sqrt(expected * (1 + all_disputed / (all_agreed + 1)))  # of both counts
        more = sum(disputed[:end]) - expected
        if more >= (RATIO - 1) * expected and more > SIGMAS * deviation:
            most = max(most, more / (all_agreed + all_disputed))
    return most


def rivals(off_target: Any, nll: Any) -> Any:
    """Whether openings are known to the model, and others have even odds or more: the root of `off_target` is one half
    if that is one other token, and if they are several, their odds are higher."""
    return (off_target >= 0.25) & (nll <= -math.log(KNOWN))


def ease(agreed: Sequence[float], rival: Sequence[float]) -> tuple[float, float]:
    """How much easier texts are after rivals than after agreed openings, in standard deviations between texts, and the
    standard deviation of that difference, which is infinite without enough texts.

    Args:
        agreed: Count, sum and sum of squares of the mean error norms of texts after an agreed opening, fading.
        rival: The same after a rival.

    Example:
        >>> [round(number, 1) for number in ease([1000, 600, 370], [200, 110, 68.5])]
        [0.5, 0.1]
    """
    if min(agreed[0], rival[0]) < ENOUGH:
        return 0.0, math.inf
    (mean, spread), (other, width) = (_spread(*sums) for sums in (agreed, rival))
    # Of faded sums a mean is as certain as that of (1 + decay) times as many.
    error = math.sqrt((spread / agreed[0] + width / rival[0]) / (1 + DECAY))
    return (mean - other) / math.sqrt(spread), error / math.sqrt(spread)


def hardest(before: float, easier: float, error: float) -> float:
    """The least that texts after rivals were easier so far, on the safe side; 0 once they were harder.

    Args:
        before: This, until now; infinite at first.
        easier: By how much they are, of `ease`.
        error: Its standard deviation.
    """
    return min(before, 0.0 if easier < 0 else easier + MARGIN * error)


def learnt(lowest: float, easier: float, error: float, share: float) -> bool:
    """Whether there are many texts after rivals, and they have become easier since they were hardest, not by chance."""
    return share >= FOUND and easier - lowest >= max(EASIER, SIGMAS * error)


def lasts(certain: float, steps: float) -> bool:
    """Whether too many sequences were certain after a disputed opening in so many of the optimizer steps that they are
    not being learnt: what a model learns stops to show before it has shown for as long as it did not."""
    return certain >= max(LONG, MOSTLY * steps)


def _spread(count: float, total: float, squares: float) -> tuple[float, float]:
    """Mean and variance."""
    mean = total / count
    return mean, max(squares / count - mean**2, SMALLEST)
