"""How many a share is."""

from __future__ import annotations

from fractions import Fraction

BELOW = Fraction(1, 2**53)  # of itself: so much less than what was written a float may be


def share_of(fraction: float, total: int) -> int:
    """floor(fraction * total), with the fraction that was meant.

    >>> share_of(0.29, 100), int(0.29 * 100)
    (29, 28)
    >>> share_of(1 / 3, 3)
    1
    """
    return int(Fraction(float(fraction)) * (1 + BELOW) * total)
