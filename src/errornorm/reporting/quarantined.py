"""The lines of a corpus that could not be scored, for its report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ..scoring.objects import read_object

MOST_KINDS = 1_000  # of reasons


@dataclass(slots=True)
class Quarantined:
    """Lines that were not used: all of them counted, the first of each reason kept."""

    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    lines: list[tuple[str, str, str]] = field(default_factory=list)  # place, reason, beginning


def read_quarantine(path: Path | None, most: int) -> Quarantined:
    """At most so many lines, and none of the reasons takes all the room."""
    found = Quarantined()
    if path is None:
        return found
    fair = max(1, most // 5)
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = read_object(line, f"{path}:{number}")
            where, reason, text = (str(row.get(name) or "") for name in ("where", "reason", "text"))
            kind = reason.partition(" (")[0][:200]
            if kind not in found.reasons and len(found.reasons) >= MOST_KINDS:
                kind = "other reasons"
            found.total += 1
            found.reasons[kind] += 1
            if len(found.lines) < most and found.reasons[kind] <= fair:
                found.lines.append((where[:400], reason[:400], text[:400]))
    return found
