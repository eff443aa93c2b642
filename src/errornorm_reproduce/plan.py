"""What an item is: the paper's numbers, the cells that answer them, and how the answer is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import methods
from .cells import Cell
from .methods import Family
from .scales import Scale
from .store import Row

Found = Sequence[tuple[Cell, Row]]
Numbers = Mapping[str, Mapping[str, float]]  # row -> column -> number
BASELINE = methods.MLE.name


@dataclass(frozen=True)
class Condition:
    """On what a method's setting is chosen."""

    corpus: str
    noise: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is asked of an item.

    Args:
        scale: How large.
        seeds: Which.
        families: Which methods; those of the item if not given.
        extra: Methods of a user, which every item gets.
        chosen: Objectives by (condition, name of the family); the first candidate where none was chosen yet.
        undecided: Methods whose choice is not complete: no cell has them.
    """

    scale: Scale
    seeds: tuple[int, ...] = (0,)
    families: tuple[str, ...] = ()
    extra: tuple[Family, ...] = ()
    chosen: Mapping[tuple[Condition, str], str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()

    def rows(self, families: Sequence[Family]) -> list[Family]:
        there = [family for family in (*families, *self.extra) if family.name not in self.undecided]
        return [family for family in there if not self.families or family.name in self.families]

    def objective(self, family: Family, condition: Condition, corpus: str) -> str:
        """The candidate that was chosen, from the step of the corpus on."""
        candidates = family.objectives(self.scale.start(condition.corpus))
        chosen = self.chosen.get((condition, family.name), candidates[0])
        return family.objectives(self.scale.start(corpus))[candidates.index(chosen)]

    def compared(
        self, item: str, column: str, corpus: str, condition: Condition, families: Sequence[Family] = methods.ALL,
        **more: object,
    ) -> list[Cell]:  # fmt: skip
        """A cell for each method and seed."""
        return [
            self.scale.cell(item, family.name, column, corpus, objective=self.objective(family, condition, corpus),
                            seed=seed, code=family.code, **more)
            for family in self.rows(families) for seed in self.seeds
        ]  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that rows can confirm or not.

    Args:
        text: The paper's words.
        better: A method that is said to be better,
        than: than these,
        columns: in these columns; without, in all that were measured.
    """

    text: str
    better: str
    than: tuple[str, ...] = (BASELINE,)
    columns: tuple[str, ...] = ()


def by_column(cell: Cell, row: Row, measure: str) -> dict[str, float]:
    found = row["measures"].get(measure)
    return {} if found is None else {cell.column: float(found)}


def as_it_is(column: str, row: Row, measure: str) -> tuple[str, str | None]:
    return measure, None


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Args:
        name: On the command line.
        where: In the paper.
        title: What it shows.
        cells: What must be run.
        measures: What is shown, by title; the first is the paper's.
        paper: The paper's numbers.
        claims: What the paper says about them.
        words: The paper's words about how it was done, by setting; "..." where some were left out.
        ours: What is done here that those words do not say.
        condition: On what settings are chosen, if any.
        families: The methods of the table.
        values: The columns that a row fills, for a measure.
        tested: For a column: the measure whose sentences stand behind it, and of which test set; None: of all.
        figure: Draws a picture.
        text: More Markdown than the tables.
        line: A row is a line over its columns: only seeds that all of them have are shown.
    """

    name: str
    where: str
    title: str
    cells: Callable[[Plan], list[Cell]]
    measures: Mapping[str, str] = field(default_factory=dict)
    paper: Numbers = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    ours: str = ""
    condition: Condition | None = None
    families: tuple[Family, ...] = methods.ALL
    values: Callable[[Cell, Row, str], dict[str, float]] = by_column
    tested: Callable[[str, Row, str], tuple[str, str | None]] = as_it_is
    figure: Callable[[Found, Path], None] | None = None
    text: Callable[[Found], str] | None = None
    line: bool = False

    @property
    def measure(self) -> str:
        """The paper's."""
        return next(iter(self.measures.values()), "")
