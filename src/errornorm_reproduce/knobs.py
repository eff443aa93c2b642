"""ENT-Auto, which has no parameters, beside likelihood and the ENT setting that was the best in that very column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from errornorm.evaluation.runs import LOWER
from errornorm.tables import table

from . import methods
from .plan import BASELINE, Found, Item
from .render import FORMATS, signed
from .statistics import Numbers

AUTO = methods.ENT_AUTO.name
BY_HAND = tuple(family.name for family in (methods.ENT_FRACTION, methods.ENT_THRESHOLD, methods.ENT_LOW_THRESHOLD))
HEAD = ("item", "column", "measure", "seeds", BASELINE, "the best ENT by hand", AUTO, "to MLE", "to the best")
PERPLEXITY = "perplexity"
NEAR, CLEAN = 1.0, 0.5  # BLEU, or per cent of perplexity: to the best by hand, and to likelihood without noise


@dataclass(frozen=True)
class Line:
    """A column of a table: means over the seeds that all of its methods have.

    Args:
        base, best, ours: Of likelihood, of the best setting by hand (`of`) and of ENT-Auto.
        hashes: Its cells; two tables may share a column.
    """

    item: str
    column: str
    measure: str
    seeds: int
    base: float
    best: float
    of: str
    ours: float
    hashes: frozenset[str]

    @property
    def clean(self) -> bool:
        """Whether its name says that there is no noise."""
        return self.column == "0%" or self.column.endswith(" 0%") or self.measure == PERPLEXITY

    def gain(self, than: float) -> float:
        """How much better ENT-Auto is: in the measure, or in per cent of a perplexity."""
        if self.measure == PERPLEXITY:
            return 100 * (1 - self.ours / than)
        return than - self.ours if self.measure in LOWER else self.ours - than

    @property
    def cells(self) -> tuple[str, ...]:
        form, per_cent = FORMATS.get(self.measure, ".1f"), "%" * (self.measure == PERPLEXITY)
        gains = (f"{signed(self.gain(than), '.1f')}{per_cent}" for than in (self.base, self.best))
        return (self.item, self.column, self.measure, str(self.seeds), f"{self.base:{form}}",
                f"{self.best:{form}}, {self.of}", f"{self.ours:{form}}", *gains)  # fmt: skip


def lines(item: Item, found: Found) -> list[Line]:
    """A line for each column that ENT-Auto, likelihood and a setting by hand have."""
    entries = Numbers(item, found, item.measure).entries()
    out = []
    for column, mine in entries.get(AUTO, {}).items():
        rivals = [name for name in (BASELINE, *BY_HAND) if column in entries.get(name, {})]
        others = {name: entries[name][column].values for name in rivals}
        seeds = set(mine.values).intersection(*others.values())
        if not seeds or BASELINE not in others or len(others) == 1:
            continue
        means = {name: fmean(values[seed] for seed in seeds) for name, values in others.items()}
        ours, base = fmean(mine.values[seed] for seed in seeds), means.pop(BASELINE)
        best = (min if item.measure in LOWER else max)(means, key=lambda name: means[name])
        hashes = frozenset(cell.hash for cell, row in found if column in item.values(cell, row, item.measure))
        out.append(Line(item.name, column, item.measure, len(seeds), base, means[best], best, ours, hashes))
    return out


def section(found: Sequence[Line]) -> list[str]:
    """What a user gives up who chooses nothing; none without rows."""
    if not found:
        return []
    once: dict[tuple[frozenset[str], str], Line] = {}
    for line in found:
        once.setdefault((line.hashes, line.column), line)
    rows = once.values()
    near = [line.gain(line.best) >= -NEAR for line in rows]
    clean = [line.gain(line.base) >= -CLEAN for line in rows if line.clean]
    about = (
        "Nothing was chosen for `ent_auto()` in any of these. *The best by hand* is the best of the ENT rows in that "
        "column, which nobody can know before; the settings of those rows were chosen once, as above. Better is +. "
        "Where nothing was dropped ENT-Auto is likelihood, and differs from it as two machines differ: up to 1 BLEU "
        "with one seed."
    )
    verdict = (
        f"{AUTO} is at most {NEAR:g} (BLEU, ROUGE, or per cent of perplexity) worse than the best by hand in "
        f"{sum(near)} of {len(near)}, and where there is no noise at most {CLEAN:g} worse than likelihood in "
        f"{sum(clean)} of {len(clean)}."
    )
    shown = table(HEAD, [line.cells for line in rows])
    return [f"### Without knobs\n\n{about}\n\n{shown}\n\n{verdict}\n"]
