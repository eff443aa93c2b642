"""A cell: everything that one run depends on, and a name made of that.

Equal cells have equal names, whichever table asked for them: a run that two tables share is done once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

SHOWN = ("item", "row", "column")  # where a cell stands in a table; what it does is the same anywhere


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run.

    Args:
        item: The table or figure that asks for it.
        row: The method, as the paper calls it.
        column: The condition.
        scale: tiny, small or paper.
        do: What to run, of `work.DOES`.
        corpus: What to learn from, of the scale's tasks.
        objective: As in a training configuration.
        noise: Shares of noise that is added, by name.
        split: What is measured on: test, or valid for a choice.
        seed: Of weights and order.
        settings: All other settings, as canonical JSON; see `Cell.told`.
        code: Hash of the file that the objective is from, if a user gave one.
    """

    item: str
    row: str
    column: str
    scale: str
    do: str = "train"
    corpus: str = ""
    objective: str = "mle"
    noise: tuple[tuple[str, float], ...] = ()
    split: str = "test"
    seed: int = 0
    settings: str = "{}"
    code: str = ""

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the result depends on."""
        out = {name: value for name, value in asdict(self).items() if name not in SHOWN}
        return out | {"settings": json.loads(self.settings), "noise": dict(self.noise)}

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(canonical(self.facts).encode()).hexdigest()[:16]

    @property
    def told(self) -> dict[str, Any]:
        """The settings."""
        found: dict[str, Any] = json.loads(self.settings)
        return found

    @property
    def name(self) -> str:
        """For people."""
        more = f", {self.column}" if self.column else ""
        return f"{self.item}: {self.row}{more}, seed {self.seed} ({self.hash})"

    def but(self, **changes: Any) -> Self:
        """The same with other entries; `settings` are merged, by dotted names."""
        if isinstance(changes.get("settings"), Mapping):
            changes["settings"] = canonical(merged(self.told, changes["settings"]))
        return replace(self, **changes)


def canonical(value: Any) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with some changed: {"training.steps": 10} goes inside.

    Example:
        >>> merged({"training": {"steps": 5, "warmup": 1}}, {"training.steps": 10})
        {'training': {'steps': 10, 'warmup': 1}}
    """
    out: dict[str, Any] = json.loads(json.dumps(settings))
    for name, value in changes.items():
        *path, last = name.split(".")
        place = out
        for key in path:
            place = place.setdefault(key, {})
        place[last] = value
    return out
