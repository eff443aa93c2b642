"""Beyond the paper: how much noise the scores show, against how much there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from errornorm.tables import table

from .. import drawing
from ..cells import Cell
from ..plan import Found, Item, Plan

NAME = "figure-noise-rate"
LEARNT = ("untranslated", "misordered", "substituted")
UNLEARNT = ("untranslated", "misordered", "misaligned", "typos", "substituted")
SHARES = (0.0, 0.1, 0.2, 0.5, 1.0)  # added to the clean text; the last is half of the mix
TEXTS = 4000
ENOUGH = 0.1  # of noise, from which on an estimate counts


def cells(plan: Plan) -> list[Cell]:
    """The training text under a model that learnt from it by likelihood, and under one that learnt from its clean
    part."""
    shares = SHARES if plan.scale.name == "small" else plan.scale.noise
    kinds = {f"{noise}, learnt": (noise, {"texts": TEXTS}) for noise in LEARNT}
    kinds |= {f"{noise}, new": (noise, {"texts": TEXTS, "unlearnt": True}) for noise in UNLEARNT}
    return [
        plan.scale.cell(NAME, name, f"{share:.0%} added", "translation", do="estimate",
                        noise=((noise, share),) if share else (), changes=changes)
        for name, (noise, changes) in kinds.items() for share in shares if share or "unlearnt" not in changes
    ]  # fmt: skip


def _told(measures: Mapping[str, float]) -> str:
    return f"{measures['rate']:.1%}" if "rate" in measures else "no estimate"


def text(found: Found) -> str:
    lines = [
        (cell.row, f"{row['measures']['truth']:.1%}", _told(row["measures"]), f"{row['measures']['learnt']:.1%}",
         " ".join(row["said"]))
        for cell, row in found
    ]  # fmt: skip
    header = ("noise", "there is", "estimated", "of it by openings, about", "what is said")
    return f"{table(header, lines)}\n\n{_summary(found)}"


def _summary(found: Found) -> str:
    """How far estimates are off, and how often there is none."""
    noisy = [(cell, row["measures"]) for cell, row in found if row["measures"]["truth"] >= ENOUGH]
    told = [(abs(m["rate"] - m["truth"]), cell) for cell, m in noisy if "rate" in m]
    if not told:
        return f"With {ENOUGH:.0%} of noise or more there was no estimate in any of {len(noisy)} cases."
    off, worst = max(told, key=lambda one: one[0])
    return (
        f"With {ENOUGH:.0%} of noise or more there was an estimate in {len(told)} of {len(noisy)} cases, off by at "
        f"most {100 * off:.1f} points ({worst.row}, {worst.column}); in the others the advice names no "
        "number, and says why."
    )


def draw(found: Found, path: Path) -> None:
    series: dict[str, tuple[list[float], list[float]]] = {"there is": ([0, 50], [0, 50])}
    for cell, row in found:
        xs, ys = series.setdefault(cell.row, ([], []))
        if "rate" in row["measures"]:
            xs.append(100 * row["measures"]["truth"])
            ys.append(100 * row["measures"]["rate"])
    drawing.lines({name: points for name, points in series.items() if points[0]}, path,
                  "noise in the training text (%)", "estimate (%)")  # fmt: skip


ITEM = Item(
    name=NAME,
    where="not in the paper",
    title="How much is noise",
    cells=cells,
    ours="what `errornorm score --advise` says about a training text, by a model that learnt from it with its noise "
    "(learnt) or without (new)",
    families=(),
    figure=draw,
    text=text,
)
