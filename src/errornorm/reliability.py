"""What `make test-slow` tried and how much of it failed, from the JSON that its suites write to the page about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .tables import table

AREAS = {  # in the order of the page
    "training": "Killed, stopped, out of room",
    "ranks": "Ranks that come and go",
    "input": "Damaged input",
    "numbers": "NaN and Inf",
    "security": "Hostile input",
    "numerics": "Kernels against float64",
    "soak": "Hours of load",
    "supply": "Dependencies",
}


def reliability_section(suites: Sequence[Mapping[str, Any]]) -> str:
    """A table for each area; in it, a line for each suite."""
    parts = []
    for area, title in AREAS.items():
        mine = sorted((suite for suite in suites if suite["area"] == area), key=lambda suite: str(suite["name"]))
        rows = [
            (
                suite["what"],
                f"{suite['tried']:,}",
                f"**{suite['failed']:,}**" if suite["failed"] else "0",
                f"{suite['seconds']:,.0f}",
                f"{suite['date']}, {suite['errornorm']}",
            )
            for suite in mine
        ]
        if rows:
            parts.append(f"## {title}\n\n{table(('what', 'tried', 'failed', 'seconds', 'when'), rows)}")
        parts += [_splits(**suite["splits"]) for suite in mine if suite.get("splits")]
        parts += [_memory(suite["memory"]) for suite in mine if suite.get("memory")]
    machines = sorted({str(suite["machine"]) for suite in suites})
    return "\n\n".join([*parts, *(f"Measured on {machine}." for machine in machines)])


def _splits(of: Sequence[str], off: Mapping[str, Sequence[float]]) -> str:
    """How far losses are from those of one process with one batch, at most."""
    rows = [(f"`{name}`", *(f"{number:.0e}" for number in numbers)) for name, numbers in off.items()]
    head = "The largest relative difference of a step's loss to that of one process, by ranks × micro-batches"
    return f"{head}:\n\n{table(('objective', *of), rows)}"


def _memory(lives: Sequence[Mapping[str, Any]]) -> str:
    """What each process held at the beginning and the end of its longest lives."""
    rows = [
        (
            life["what"],
            f"{life['minutes'][0]:.0f} to {life['minutes'][-1]:.0f}",
            f"{life['MB'][0]:,.0f}",
            f"{life['MB'][-1]:,.0f}",
            f"{life['MB per hour']:+.1f}",
            str(life["files"]),
        )
        for life in lives
    ]
    return table(("resident memory of", "minutes", "MB, first", "MB, last", "MB per hour, warm", "open files"), rows)
