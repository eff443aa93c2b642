"""ENT-Auto, which has no parameters, beside likelihood and the ENT setting that was the best in that very column."""

from __future__ import annotations

from statistics import fmean

from errornorm.tables import table

from . import methods
from .plan import BASELINE, LOWER, Found, Item
from .render import FORMATS
from .statistics import Numbers

AUTO = methods.ENT_AUTO.name
BY_HAND = tuple(family.name for family in (methods.ENT_FRACTION, methods.ENT_THRESHOLD, methods.ENT_LOW_THRESHOLD))
HEAD = ("item", "column", "measure", "seeds", BASELINE, "the best ENT by hand", AUTO, "to MLE", "to the best")


def lines(item: Item, found: Found) -> list[tuple[str, ...]]:
    """A line for each column, over the seeds that all of its methods have."""
    entries = Numbers(item, found, item.measure).entries()
    auto, form = entries.get(AUTO, {}), FORMATS.get(item.measure, ".1f")
    out = []
    for column, mine in auto.items():
        rivals = [name for name in (BASELINE, *BY_HAND) if column in entries.get(name, {})]
        others = {name: entries[name][column].values for name in rivals}
        seeds = set(mine.values).intersection(*others.values())
        if not seeds or BASELINE not in others or len(others) == 1:
            continue
        means = {name: fmean(values[seed] for seed in seeds) for name, values in others.items()}
        ours, base = fmean(mine.values[seed] for seed in seeds), means.pop(BASELINE)
        best = (min if item.measure in LOWER else max)(means, key=lambda name: means[name])
        differences = (_difference(ours, than, item.measure) for than in (base, means[best]))
        out.append((item.name, column, item.measure, str(len(seeds)), f"{base:{form}}", f"{means[best]:{form}}, {best}",
                    f"{ours:{form}}", *differences))  # fmt: skip
    return out


def _difference(ours: float, than: float, measure: str) -> str:
    return f"{ours / than - 1:+.1%}" if measure == "perplexity" else f"{ours - than:+.1f}"


def section(rows: list[tuple[str, ...]]) -> list[str]:
    """What a user gives up who chooses nothing; none without rows."""
    if not rows:
        return []
    about = (
        "Nothing was chosen for `ent_auto()` in any of these. *The best by hand* is the best of the ENT rows in that "
        "column, which nobody can know before; the settings of those rows were chosen once, as above."
    )
    return [f"### Without knobs\n\n{about}\n\n{table(HEAD, rows)}\n"]
