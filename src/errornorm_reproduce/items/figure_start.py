"""Figure 7: how much the step matters from which a method acts."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import stdev

from errornorm.tables import table

from .. import drawing, methods
from ..cells import Cell
from ..plan import Found, Item, Plan
from ..statistics import entries
from .table_lm import CHOICE

NAME = "figure-start"
FAMILIES = (methods.MLE, methods.LOSS_TRUNCATION, methods.TAILR, methods.ENT_FRACTION, methods.ENT_THRESHOLD,
            methods.TOKEN_LOSS)  # fmt: skip


def from_step(objective: str, start: int) -> str:
    """The objective, from another step on.

    Example:
        >>> from_step("ent_fraction(0.1, start=300)", 0), from_step("tailr(0.5, floor=0.2)", 100), from_step("mle", 5)
        ('ent_fraction(0.1, start=0)', 'tailr(0.5, floor=0.2, start=100)', 'mle(start=5)')
    """
    if "start=" in objective:
        return re.sub(r"start=\d+", f"start={start}", objective)
    return f"{objective[:-1]}, start={start})" if objective.endswith(")") else f"{objective}(start={start})"


def cells(plan: Plan) -> list[Cell]:
    out = []
    for cell in plan.compared(NAME, "", "lm", CHOICE, FAMILIES):
        for start in plan.scale.starts:
            objective = cell.objective if cell.row == methods.MLE.name else from_step(cell.objective, start)
            out.append(cell.but(column=str(start), objective=objective))
    return out


def text(found: Found) -> str:
    """How far a method's perplexity depends on the step: what the paper calls variance."""
    lines, spreads = [], {}
    for name, row in entries(ITEM, found, "perplexity").items():
        values = [entry.mean for entry in row.values()]
        if name != methods.MLE.name and len(values) > 1:
            spreads[name] = (stdev(values), min(values))
            lines.append((name, f"{stdev(values):.2f}", f"{min(values):.2f}", f"{max(values):.2f}"))
    if not lines:
        return ""
    least, best = (min(spreads, key=lambda name: spreads[name][i]) for i in (0, 1))
    return table(("method", "standard deviation over steps", "best", "worst"), lines) + (
        f"\n\nThe paper: “ENT exhibits the least variance and best performance.” Here the least is that of {least}, "
        f"the best perplexity that of {best}."
    )


def draw(found: Found, path: Path) -> None:
    lines = {
        name: ([int(column) for column in row], [entry.mean for entry in row.values()])
        for name, row in entries(ITEM, found, "perplexity").items()
    }
    drawing.lines(lines, path, "step from which the method acts", "perplexity")


ITEM = Item(
    name=NAME,
    where="Figure 7",
    title="The start step",
    cells=cells,
    measures={"Perplexity, by the step from which the method acts (lower is better)": "perplexity"},
    words={"start": "we vary this iteration in {0, 100, 200, 500, 1000} parameter updates"},
    condition=CHOICE,
    families=FAMILIES,
    figure=draw,
    text=text,
    line=True,
)
