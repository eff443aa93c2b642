"""A word that may have been meant. It is in messages of everything, so it needs nothing, not even torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, words: Iterable[str]) -> str:
    """What a message says behind an unknown word.

    >>> near("mel", ["mle", "tailr"])
    ' (did you mean mle?)'
    """
    found = difflib.get_close_matches(word, list(words), 1)
    return f" (did you mean {found[0]}?)" if found else ""
