"""The rows of the tables: methods with the settings among which each is chosen, and methods of a user."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errornorm import methods as library
from errornorm import specs

RELEASED = "as-released"  # instead of a file: the one of this package


@dataclass(frozen=True)
class Family:
    """A row of a table.

    Args:
        name: As the paper calls it.
        candidates: Settings, the best of which on the development set is used; {start} is the scale's start step.
        words: What the paper says about them.
        paper: Whether the paper has this row.
        code: Hash of the user's file it is from.
    """

    name: str
    candidates: tuple[str, ...]
    words: str
    paper: bool = True
    code: str = ""

    def objectives(self, start: int) -> tuple[str, ...]:
        return tuple(candidate.replace("{start}", str(start)) for candidate in self.candidates)


MLE = Family("MLE", ("mle",), "The MLE baseline")
LOSS_TRUNCATION = Family(
    "Loss Truncation",
    tuple(f"loss_truncation({fraction}, start={{start}})" for fraction in (0.05, 0.1, 0.2)),
    "choose the best result among three truncation fractions {0.05, 0.1, 0.2} for Loss Truncation",
)
TAILR = Family(
    "TaiLr",
    tuple(f"tailr({gamma}, floor={floor})" for gamma in (0.1, 0.5, 1.0) for floor in (0.1, 0.2, 0.3)),
    "3x3 hyperparameter combinations: gamma in {0.1, 0.5, 1.0} and lower threshold of the weighting factor among "
    "{0.1, 0.2, 0.3}",
)
ENT_FRACTION = Family(
    "ENT-Fraction",
    ("ent_fraction(0.1, start={start})",),
    "We fix the truncation fraction to be 0.1 for ENT-fraction",
)
ENT_THRESHOLD = Family(
    "ENT-Threshold",
    tuple(f"ent_threshold({threshold})" for threshold in (1.35, 1.38, 1.4)),
    "We select the best results among three threshold values {1.35, 1.38, 1.4} for ENT-threshold",
)
# What the paper does not have: thresholds that a small model can reach, and what a claim about truncation must beat.
ENT_LOW_THRESHOLD = Family(
    "ENT-Threshold, lower",
    tuple(f"ent_threshold({threshold}, start={{start}})" for threshold in (1.1, 1.2, 1.3)),
    "not in the paper: a model that fits noise does not reach the paper's thresholds",
    paper=False,
)
TOKEN_LOSS = Family(
    "Token-level loss truncation",
    ("token_loss_truncation(0.1, start={start})",),
    "not in the paper: the same fraction by loss",
    paper=False,
)
RANDOM = Family(
    "Random truncation",
    ("random_truncation(0.1, start={start})",),
    "not in the paper: the same fraction at random",
    paper=False,
)
ENT_AUTO = Family(
    "ENT-Auto",
    ("ent_auto()",),
    "not in the paper: no parameter, and none chosen",
    paper=False,
)
PAPER = (MLE, LOSS_TRUNCATION, TAILR, ENT_FRACTION, ENT_THRESHOLD)
ALL = (*PAPER, ENT_LOW_THRESHOLD, ENT_AUTO, TOKEN_LOSS, RANDOM)


def load(path: Path) -> list[Family]:
    """The methods of a user's file, one row each; from then on this process knows them.

    The file has METHODS, as `errornorm.methods` does: names and functions that make objectives. It may have CANDIDATES:
    for a name, the texts to choose among, such as ["mine(0.1)", "mine(0.2, start={start})"]. "as-released" is a file of
    this package.
    """
    if str(path) == RELEASED:
        path = Path(__file__).with_name("as_released.py")
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give the Python file of a method")
    found = runpy.run_path(str(path))
    table, candidates = found.get("METHODS"), found.get("CANDIDATES", {})
    if not isinstance(table, Mapping) or not table:
        raise ValueError(f'{path}: no METHODS; end it with METHODS = {{"mine": mine}}')
    code = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    _register(path, table)
    families = []
    for name in table:
        texts = tuple(candidates.get(name, (name,)))
        for text in texts:
            specs.objective(text.replace("{start}", "0"))
        families.append(Family(name, texts, f"not in the paper: {path.name}", paper=False, code=code))
    return families


@contextmanager
def released() -> Iterator[tuple[Family, ...]]:
    """The baselines as released, known for as long as they are needed."""
    families = tuple(load(Path(RELEASED)))
    try:
        yield families
    finally:
        for family in families:
            del library.METHODS[family.name]


def _register(path: Path, table: Mapping[str, Any]) -> None:
    for name, factory in table.items():
        if name in {family.name for family in ALL}:
            raise ValueError(f"{path}: the tables have a row {name!r} already; choose another name")
        known = library.METHODS.get(name)
        if known is not None and getattr(known, "__errornorm_file__", None) != str(path.resolve()):
            raise ValueError(f"{path}: there is a method {name!r} already; choose another name")
        factory.__errornorm_file__ = str(path.resolve())
        library.METHODS[name] = factory
