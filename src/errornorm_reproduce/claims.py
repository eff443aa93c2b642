"""What the paper says, and whether the rows bear it out."""

from __future__ import annotations

from dataclasses import dataclass

from errornorm.evaluation.runs import LOWER

from .plan import Claim, Found, Item
from .statistics import Numbers, Pair

HELD, FAILED, CHANCE = "held", "did not hold", "within chance"
UNTESTED, UNKNOWN = "not tested", "not measured"


@dataclass(frozen=True)
class Comparison:
    """One column of a claim: the better method against another one."""

    than: str
    column: str
    pair: Pair
    verdict: str


@dataclass(frozen=True)
class Verdict:
    """A claim with all comparisons that speak of it."""

    claim: Claim
    comparisons: tuple[Comparison, ...]

    @property
    def text(self) -> str:
        """One word if all agree, else how many of each."""
        found = [comparison.verdict for comparison in self.comparisons] or [UNKNOWN]
        counts = {name: found.count(name) for name in (HELD, CHANCE, FAILED, UNTESTED, UNKNOWN) if name in found}
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{name} in {num} of {len(found)}" for name, num in counts.items())


def verdicts(item: Item, found: Found) -> list[Verdict]:
    """Every claim of an item."""
    ours = Numbers(item, found, item.measure)
    return [Verdict(claim, tuple(_comparisons(claim, ours))) for claim in item.claims]


def _comparisons(claim: Claim, ours: Numbers) -> list[Comparison]:
    out = []
    for column in claim.columns or ours.columns:
        for than in claim.than:
            pair = ours.against(claim.better, than, column)
            if pair is not None:
                out.append(Comparison(than, column, pair, _judged(pair, ours.measure in LOWER)))
    return out


def _judged(pair: Pair, lower: bool) -> str:
    if pair.difference == 0:
        return CHANCE
    if pair.p is None:
        return UNTESTED
    if not pair.sure:
        return CHANCE
    return HELD if (pair.difference < 0) == lower else FAILED
