"""An item from beginning to end: choose settings, run what is missing, show what there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from errornorm.data.lines import DataError
from errornorm.near import near
from errornorm.training.run import is_main

from . import choose, grid, methods, render
from .cells import Cell
from .items import ITEMS
from .plan import Found, Item, Plan
from .scales import SCALES
from .store import Store, present
from .work import Place

OURS, RESULTS, WORK = Path("docs/results/reproduce"), Path("errornorm-results"), Path("errornorm-reproduce")


def usual_results() -> Path:
    """Where rows go if nobody says it: in a clone of the project to its own, whose cells need not run again."""
    return OURS if OURS.is_dir() else RESULTS


@dataclass(frozen=True)
class Asked:
    """What a user asks for.

    Args:
        scale: tiny, small or paper.
        data: Folder of local corpora, for small.
        seeds: How many, from 0.
        jobs: Cells at a time, each in a process with one thread.
        results: Where rows and figures go.
        work: Where runs lie; may be removed later.
        families: Only these methods.
        method_file: A file with more.
        partition: Of a Slurm cluster, to submit cells as jobs instead.
    """

    scale: str = "tiny"
    data: Path | None = None
    seeds: int = 3
    jobs: int = 1
    results: Path = field(default_factory=usual_results)
    work: Path = WORK
    families: tuple[str, ...] = ()
    method_file: Path | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"unknown scale {self.scale!r}{near(self.scale, SCALES)}; there are {', '.join(SCALES)}")

    @property
    def store(self) -> Store:
        return Store(self.results)

    def plan(self) -> Plan:
        extra = tuple(methods.load(self.method_file)) if self.method_file else ()
        known = [family.name for family in (*methods.ALL, *extra)]
        for name in self.families:
            if name not in known:
                raise ValueError(f"unknown method {name!r}{near(name, known)}; there are {'; '.join(known)}")
        return Plan(SCALES[self.scale], tuple(range(self.seeds)), self.families, extra)


@dataclass(frozen=True)
class Reproduced:
    """What an item shows.

    Args:
        text: Markdown.
        figure: A picture, if it has one and there are rows for it.
        outcome: What became of its cells.
        jobs: Names of Slurm jobs that were submitted.
    """

    text: str
    figure: Path | None
    outcome: grid.Outcome
    jobs: tuple[str, ...] = ()


def item_of(name: str) -> Item:
    if name not in ITEMS:
        raise ValueError(f"unknown item {name!r}{near(name, ITEMS)}; there are {', '.join(ITEMS)}")
    return ITEMS[name]


def reproduce(name: str, asked: Asked, tell: Callable[[str], None] = lambda text: None) -> Reproduced:
    """Run an item's missing cells, and show it."""
    item, plan = item_of(name), asked.plan()
    if plan.scale.needs_data and asked.data is None and any(cell.corpus for cell in item.cells(plan)):
        raise ValueError(f"the scale {asked.scale} needs local data: give their folder with --data")
    if asked.data is not None and not asked.data.is_dir():
        raise DataError(f"{asked.data}: no such folder; give that of the local data with --data")
    how = grid.Grid(asked.store, Place(asked.work, asked.data), asked.method_file, asked.jobs, tell)
    choice = choices(item, plan)
    if asked.partition is not None:
        return _submitted(item, plan, choice, how, asked)
    first = grid.run(choice, how)
    plan = chosen(item, plan, asked.store)
    second = grid.run(item.cells(plan), how)
    outcome = grid.Outcome(*(a + b for a, b in zip(vars(first).values(), vars(second).values(), strict=True)))
    text, figure = shown(item, plan, asked.store)
    return Reproduced(text, figure, outcome)


def _submitted(item: Item, plan: Plan, choice: Sequence[Cell], how: grid.Grid, asked: Asked) -> Reproduced:
    """The choice first: what follows depends on it."""
    from . import slurm

    assert asked.partition is not None
    missing = [cell for cell in choice if asked.store.find(cell) is None]
    cells = missing or item.cells(chosen(item, plan, asked.store))
    jobs = slurm.submit(cells, how, asked.partition)
    text, figure = shown(item, chosen(item, plan, asked.store), asked.store)
    return Reproduced(text, figure, grid.Outcome(), tuple(jobs))


def choices(item: Item, plan: Plan) -> list[Cell]:
    """The cells that settings are chosen by."""
    return choose.cells(plan, item.condition, item.families) if item.condition else []


def chosen(item: Item, plan: Plan, store: Store) -> Plan:
    """The plan with the settings that the rows say are best, and without the methods of which they do not say."""
    if item.condition is None:
        return plan
    best = choose.best(plan, item.condition, item.families, store)
    undecided = [f.name for f in plan.rows(item.families) if len(f.candidates) > 1 and f.name not in best]
    objectives = {(item.condition, name): objective for name, objective in best.items()}
    return replace(plan, chosen=objectives, undecided=tuple(undecided))


def there(item: Item, cells: Sequence[Cell], store: Store) -> Found:
    """The cells that have rows and are shown. Other tables may have run more seeds of some."""
    found = present(store, cells)
    if not item.line or not found:
        return found
    seeds: dict[tuple[str, str], set[int]] = {}
    for cell, _ in found:
        seeds.setdefault((cell.row, cell.column), set()).add(cell.seed)
    common = set.intersection(*seeds.values())
    return [(cell, row) for cell, row in found if cell.seed in common] if common else found


def shown(item: Item, plan: Plan, store: Store) -> tuple[str, Path | None]:
    """The item's part of the page, and its picture, from the rows there are."""
    cells = item.cells(plan)
    found = there(item, cells, store)
    asked = (*choices(item, replace(plan, undecided=())), *cells)
    missing = [cell for cell in asked if store.find(cell) is None]
    failed = [f"{cell.name}: {row['error']}: {row['text']}" for cell in missing if (row := store.failed(cell))]
    figure = None
    if item.figure is not None and found:
        figure = store.folder / item.name / f"{item.name}-{plan.scale.name}.svg"
        if is_main():
            item.figure(found, figure)
    tried = choose.tried(plan, item.condition, item.families, store) if item.condition else []
    remarks = store.folder / item.name / f"remarks-{plan.scale.name}.md"
    said = remarks.read_text(encoding="utf-8") if remarks.is_file() else ""
    return render.section(item, render.Parts(found, tried, failed, said)), figure
