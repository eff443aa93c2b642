"""Figure 3: the error norm of the largest tenth of the tokens over training."""

from __future__ import annotations

from pathlib import Path

from errornorm.tables import table

from .. import drawing, methods
from ..plan import Condition, Found, Item

NAME = "figure-dynamics"
WARM = 1.05  # above it, the worst tenth are tokens for which the model is sure of another one


def curves(found: Found) -> dict[str, tuple[list[int], list[float]]]:
    out = {}
    for cell, row in found:
        points = [(step, norm) for step, _, _, norm in row["curve"] if norm is not None]
        out[f"seed {cell.seed}"] = ([step for step, _ in points], [norm for _, norm in points])
    return out


def text(found: Found) -> str:
    lines = []
    for name, (steps, norms) in curves(found).items():
        warm = next((str(step) for step, norm in zip(steps, norms, strict=True) if norm > WARM), "never")
        lines.append((name, f"{norms[0]:.3f}", warm, f"{norms[-1]:.3f}"))
    header = ("run", "top 10 % at first", f"above {WARM} from step", "top 10 % at last")
    return (
        table(header, lines) + "\n\nThe paper: “Initially, all error norms are close to 1 ... After the model is warmed"
        " up, it begins to detect data noise by assigning large error norms”, around iteration 500."
    )


def draw(found: Found, path: Path) -> None:
    drawing.lines(curves(found), path, "step", "error norm, mean of the top 10 %")


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
