"""Sequences that are certain but for their opening."""

from __future__ import annotations

import math
from typing import Any

EVEN = math.sqrt(0.5)  # the error norm of a token at even odds against one other


def hardness(rests: Any, lengths: Any, level: float) -> Any:
    """How hard sequences are after their first token, of an average token: from 0 to 1, which is "as any".

    It is as if one more average token followed, so that little text says little.

    Args:
        rests: Sum of the nll of all tokens but the first; a tensor or an array with an entry for each sequence.
        lengths: Tokens, the first one included.
        level: Mean nll of a token.
    """
    return ((rests / level + 1) / lengths).clip(max=1.0)


def disputed(norms: Any, hard: Any) -> Any:
    """Whether first tokens with these error norms stand against what follows them."""
    return norms > EVEN + 0.5 * hard
