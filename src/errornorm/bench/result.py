"""What the benchmark found. Every row carries the settings that made it; the JSON file is the source of the rest."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Settings:
    tokens: int
    hidden: int
    vocab: int
    fraction: float
    repeat: int
    threads: int
    seed: int
    clock: str  # "cpu" or "wall"
    memory: str  # how it was measured, or why not
    torch: str
    errornorm: str
    cpu: str


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    label: str
    kind: Literal["yardstick", "peer", "ours"]
    objective: str | None  # with every parameter
    note: str  # what was chosen, or why it did not run
    ran: bool
    times_ms: tuple[float, ...]
    best_ms: float | None
    median_ms: float | None
    to_plain: float | None  # median over the rounds
    to_floor: float | None
    peak_mb: float | None  # gradients included
    memory_to_plain: float | None
    loss_error: float | None  # relative to float64
    gradient_error: float | None  # the largest, relative to the largest float64 gradient
    settings: Settings


@dataclass(frozen=True, slots=True)
class Result:
    rows: tuple[Row, ...]

    def by_size(self) -> dict[Settings, list[Row]]:
        groups: dict[Settings, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.settings, []).append(row)
        return groups

    def to_json(self) -> str:
        return json.dumps({"rows": [asdict(row) for row in self.rows]}, indent=1) + "\n"
