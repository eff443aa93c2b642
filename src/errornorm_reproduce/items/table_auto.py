"""Beyond the paper: the method without parameters beside the best of those that were tuned, in all tables of BLEU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from errornorm.tables import table

from .. import methods
from ..cells import Cell
from ..plan import BASELINE, Found, Item, Plan, by_column
from ..statistics import Entry, entries
from ..store import Row
from . import table_everyday, table_misordered, table_natural_noise, table_unseen, table_untranslated
from .table_untranslated import CHOICE

NAME, MEASURE = "table-auto", "bleu"
PARTS = {
    part.ITEM.name: (part.ITEM, about)
    for part, about in (
        (table_untranslated, "captions, untranslated"),
        (table_misordered, "captions, misordered"),
        (table_everyday, "everyday,"),
        (table_unseen, ""),
        (table_natural_noise, "natural noise,"),
    )
}
AUTO = methods.ENT_AUTO.name
TUNED = (methods.ENT_FRACTION, methods.ENT_THRESHOLD, methods.ENT_LOW_THRESHOLD)
FAMILIES = (methods.MLE, *TUNED, methods.ENT_AUTO)
NEAR, CLEAN = 1.0, 0.5  # BLEU: to the best by hand, and to likelihood where there is no noise


def cells(plan: Plan) -> list[Cell]:
    """Those of the other tables, each once: two of them have clean captions."""
    names = {family.name for family in FAMILIES}
    out: dict[str, Cell] = {}
    for item, _ in PARTS.values():
        for cell in item.cells(plan):
            if cell.row in names:
                out.setdefault(cell.hash, cell)
    return list(out.values())


def values(cell: Cell, row: Row, measure: str) -> dict[str, float]:
    _, about = PARTS[cell.item]
    return {f"{about} {column}".strip(): number for column, number in by_column(cell, row, measure).items()}


@dataclass(frozen=True)
class Line:
    """Means over the seeds that all methods have in a column; NaN where one is missing."""

    column: str
    seeds: int
    mle: float
    best: float
    of: str
    auto: float

    @property
    def near(self) -> float:
        return self.auto - self.best

    @property
    def gain(self) -> float:
        return self.auto - self.mle


def line(column: str, there: Mapping[str, Entry]) -> Line:
    seeds = set.intersection(*(set(entry.values) for entry in there.values()))
    means = {name: fmean(entry.values[seed] for seed in seeds) for name, entry in there.items() if seeds}
    tuned = [(means[family.name], family.name) for family in TUNED if family.name in means]
    best, of = max(tuned, default=(math.nan, ""))
    return Line(column, len(seeds), means.get(BASELINE, math.nan), best, of, means.get(AUTO, math.nan))


def text(found: Found) -> str:
    known = entries(ITEM, found, MEASURE)
    columns = dict.fromkeys(column for row in known.values() for column in row)
    lines = [line(column, {name: row[column] for name, row in known.items() if column in row}) for column in columns]
    shown = [
        (x.column, str(x.seeds), *_told("{:.1f}", x.mle), " ".join((*_told("{:.1f}", x.best), x.of)),
         *_told("{:.1f}", x.auto), *_told("{:+.1f}", x.near, x.gain))
        for x in lines
    ]  # fmt: skip
    near = [x.near >= -NEAR for x in lines if not math.isnan(x.near)]
    clean = [x.gain >= -CLEAN for x in lines if not math.isnan(x.gain) and x.column.endswith(" 0%")]
    header = ("corpus and noise", "seeds", "MLE", "best ENT by hand", AUTO, "to the best", "to MLE")
    return (
        f"BLEU, beam 5, means over the seeds that all have:\n\n{table(header, shown)}\n\n"
        f"{AUTO} is at most {NEAR:g} BLEU below the best setting by hand in {sum(near)} of {len(near)}, and without "
        f"noise at most {CLEAN:g} below likelihood in {sum(clean)} of {len(clean)}."
    )


def _told(form: str, *numbers: float) -> list[str]:
    return ["" if math.isnan(number) else form.format(number) for number in numbers]


ITEM = Item(
    name=NAME,
    where="not in the paper",
    title="Without parameters, and by hand",
    cells=cells,
    ours="rows of the tables above; the settings by hand are those that were chosen on captions with 20 % copies, "
    "and of these the best on the test set",
    condition=CHOICE,
    families=FAMILIES,
    values=values,
    text=text,
)
