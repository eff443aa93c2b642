"""Figure 3: the error norm of the largest tenth of the tokens over training."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from errornorm.tables import table

from .. import drawing, methods
from ..plan import Condition, Found, Item

NAME = "figure-dynamics"
LAST = 5  # points whose mean is the level at the end


def curves(found: Found) -> dict[str, tuple[list[int], list[float]]]:
    out = {}
    for cell, row in found:
        points = [(step, norm) for step, _, _, norm in row["curve"] if norm is not None]
        out[f"seed {cell.seed}"] = ([step for step, _ in points], [norm for _, norm in points])
    return out


def warm(steps: list[int], norms: list[float]) -> tuple[int, float]:
    """The step at which half of the rise is done, and the level at the end."""
    last = fmean(norms[-LAST:])
    return next(step for step, norm in zip(steps, norms, strict=True) if norm >= (norms[0] + last) / 2), last


def text(found: Found) -> str:
    lines = []
    for name, (steps, norms) in curves(found).items():
        step, last = warm(steps, norms)
        lines.append((name, f"{norms[0]:.3f}", f"{last:.3f}", str(step)))
    header = ("run", "top 10 % at first", "at last", "half of the rise is done at step")
    return (
        table(header, lines) + "\n\nThe paper: “Initially, all error norms are close to 1 ... After the model is warmed"
        " up, it begins to detect data noise by assigning large error norms”, around iteration 500."
    )


def draw(found: Found, path: Path) -> None:
    series = curves(found)
    marks = [warm(*points)[0] for points in series.values()]
    drawing.lines(series, path, "step", "error norm, mean of the top 10 %", marks)


ITEM = Item(
    name=NAME,
    where="Figure 3",
    title="The model warms up",
    cells=lambda plan: plan.compared(NAME, "", "lm", Condition("lm"), (methods.MLE,)),
    words={"model": "pre-training GPT2-large on WikiText-103", "shown": "the error norm for the largest 10% of data"},
    families=(methods.MLE,),
    figure=draw,
    text=text,
)
