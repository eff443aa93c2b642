"""What the paper says, and whether the rows bear it out."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import LOWER, Claim, Found, Item
from .statistics import SURE, Numbers

HELD, FAILED, CHANCE, UNKNOWN = "held", "did not hold", "within chance", "not measured"


@dataclass(frozen=True)
class Comparison:
    """One column of a claim: the better method against another one."""

    than: str
    column: str
    ours: float
    theirs: float
    seeds: int
    p: float | None
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
        counts = {name: found.count(name) for name in (HELD, CHANCE, FAILED, UNKNOWN) if name in found}
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
            difference, p = ours.against(claim.better, than, column)
            if difference is None:
                continue
            gain = -difference if ours.measure in LOWER else difference
            chance = difference == 0 or (p is not None and p >= SURE)
            verdict = CHANCE if chance else HELD if gain > 0 else FAILED
            a, b = (ours.entry(name, column) for name in (claim.better, than))
            out.append(Comparison(than, column, a.mean, b.mean, len(a.values), p, verdict))
    return out
