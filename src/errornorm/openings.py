"""Sequences that are certain but for their opening.

An opening is disputed if the model gave it less than even odds against another one. In clean text that happens where
there are several ways to begin, and what follows is as hard as after any other beginning. Noise that a model has learnt
is different: after a disputed opening the rest is certain. So the sequences with an agreed opening are the control
group: where disputed ones are certain far more often than these, most of them are noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

EVEN = math.sqrt(0.5)  # the error norm of a token at even odds against one other
BINS = 20  # of the hardness
WINDOW = 3  # bins that are compared at a time
RATIO = 2.0  # how much more frequent disputed ones must be than agreed ones: then more than half are too many
SIGMAS = 3.0  # by how many standard deviations they must be more than expected


def hardness(rests: Any, lengths: Any, level: float) -> Any:
    """How hard sequences are after their first token, of an average token: from 0 to 1, which is "as any".

    It is as if one more average token followed, so that little text says little.

    Args:
        rests: Mean nll of all tokens but the first; a tensor or an array with an entry for each sequence.
        lengths: Tokens, the first one included.
        level: Mean nll of a token.
    """
    return ((rests / level * (lengths - 1) + 1) / lengths).clip(max=1.0)


def bound(agreed: Sequence[float], disputed: Sequence[float]) -> float:
    """The hardness below which most sequences with a disputed opening are noise; 0 if there is none.

    Args:
        agreed: How many sequences with an agreed opening there are, by hardness, in bins of equal width.
        disputed: The same with a disputed one.

    Example:
        >>> bound([10] * 20, [10] * 20)
        0.0
        >>> bound([10] * 20, [100] * 6 + [10] * 14)
        0.3
    """
    found, (all_agreed, all_disputed) = 0, (sum(agreed), sum(disputed))
    for end in range(1, len(agreed)):
        expected = all_disputed * (sum(agreed[:end]) + 1) / (all_agreed + 1)
        near = slice(max(0, end - WINDOW), end)
        usual = all_disputed * (sum(agreed[near]) + 1) / (all_agreed + 1)
        clear = sum(disputed[:end]) - expected > SIGMAS * math.sqrt(expected)
        if clear and sum(disputed[near]) >= RATIO * usual:
            found = end
    return found / len(agreed)
