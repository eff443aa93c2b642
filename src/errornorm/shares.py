"""How many a share is."""

from __future__ import annotations

from fractions import Fraction


def share_of(fraction: float, total: int) -> int:
    """floor(fraction * total), with the fraction as it is written.

    >>> share_of(0.29, 100), int(0.29 * 100)
    (29, 28)
    """
    return int(Fraction(repr(float(fraction))) * total)
