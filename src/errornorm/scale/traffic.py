"""What each scope hands to the other ranks, as formulas; tests compare them with what is really handed over.

A rank hands its own part to a collective. What then goes over its link depends on how the collective works; the
formulas here are those of a ring, which is the best that there is for large messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..cutoffs import DIGIT
from ..openings import BINS as HARDNESS
from ..running import BINS

COUNT, NUMBER = 8, 4  # bytes of a count (or a sum in float64), and of a statistic (or a gradient under construction)
PARTIAL = 6  # numbers of a token that a slice of the vocabulary knows, see docs/algebra.md
DIGITS = -(-8 * NUMBER // DIGIT)  # rounds in which the ranks find a float32 score


@dataclass(frozen=True, slots=True)
class Load:
    """What a rank has in one optimizer step, over all its micro-batches."""

    tokens: int
    sequences: int
    width: int
    micro: int = 1  # batches


class Sends(NamedTuple):
    """Bytes that a rank hands over in an optimizer step."""

    all_reduce: int = 0
    all_gather: int = 0

    def over_the_link(self, ranks: int) -> float:
        """Bytes that each rank sends in a ring, and as many that it receives."""
        return 2 * (ranks - 1) / ranks * self.all_reduce + (ranks - 1) * self.all_gather


Formula = Callable[[Load], Sends]


def nothing(load: Load) -> Sends:
    return Sends()


def exact(load: Load) -> Sends:
    """Counts of scores by a few bits at a time; then how many are equal to the cutoff, and the next score."""
    return Sends(load.micro * DIGITS * 2**DIGIT * COUNT, load.micro * 2 * COUNT)


def histogram(load: Load) -> Sends:
    return Sends(BINS * COUNT)


def window(load: Load) -> Sends:
    """The score of each sequence, and how many there are."""
    return Sends(0, COUNT + NUMBER * load.sequences)


def control_group(load: Load) -> Sends:
    """Two histograms of hardness; count, sum and squares of losses, and of error norms in two groups."""
    return Sends((2 * HARDNESS + 3 * 3) * COUNT)


def shards(load: Load) -> Sends:
    """A check of the shards, partials of all tokens, and the gradient of the hidden states; without wrong guesses."""
    return Sends(load.micro * 2 * COUNT + NUMBER * load.tokens * (PARTIAL + load.width))


class Scope(NamedTuple):
    objective: str
    about: str
    formula: Formula
    rounds: int | None = 0  # collectives of a step with one micro-batch; None: two for each chunk
    sharded: bool = False  # the vocabulary is split over the ranks, and all have the same tokens
    guessed: bool = False  # what was guessed wrongly is asked for again, on top of the formula


SCOPES = {
    "none": Scope("mle()", "`mle`, thresholds and soft weights", nothing),
    "batch": Scope("ent_fraction(0.1)", '`scope="batch"`', nothing),
    "global": Scope("ent_fraction(0.1, scope='global')", '`scope="global"`', exact, DIGITS + 1),
    "global sequences": Scope(
        "ent_fraction(0.1, unit='sequence', scope='global')", '`scope="global"`, `unit="sequence"`', exact, DIGITS + 1
    ),
    "running": Scope("ent_fraction(0.1, scope='running')", '`scope="running"`', histogram, 1),
    "running sequences": Scope(
        "ent_fraction(0.1, unit='sequence', scope='running')", '`scope="running"`, `unit="sequence"`', histogram, 1
    ),
    "start": Scope("ent_fraction(0.1, start='auto')", '`start="auto"`, until the model is warm', histogram, 1),
    "ent_auto": Scope("ent_auto()", "`ent_auto`", control_group, 5),
    "loss_truncation": Scope("loss_truncation(0.1)", "`loss_truncation`", window, 2),
    "shards": Scope("mle()", "`mle`, a sharded vocabulary", shards, None, sharded=True),
    "shards fraction": Scope(
        "ent_fraction(0.1)", "`ent_fraction`, a sharded vocabulary", shards, None, sharded=True, guessed=True
    ),
}
