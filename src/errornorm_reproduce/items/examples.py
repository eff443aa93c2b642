"""Table 6: sentences with the tokens of large error norm marked."""

from __future__ import annotations

from errornorm.tables import table

from ..cells import Cell
from ..highlights import RED, YELLOW
from ..plan import Found, Item, Plan
from .figure_pruning import corpus

NAME = "examples"


def cells(plan: Plan) -> list[Cell]:
    return [plan.scale.cell(NAME, "MLE", "", corpus(plan), do="highlight")]


def text(found: Found) -> str:
    ((_, row),) = found
    lines = [(s["source"], "".join(_marked(*token) for token in s["tokens"])) for s in row["sentences_shown"]]
    return f"**Bold** above {RED} (the paper's red), *italic* above {YELLOW} (yellow):\n\n" + table(
        ("source", "target"), lines
    )


def _marked(text: str, norm: float) -> str:
    mark = "**" if norm > RED else "*" if norm > YELLOW else ""
    bare = text.strip()
    return text.replace(bare, f"{mark}{bare}{mark}") if mark and bare else text


ITEM = Item(
    name=NAME,
    where="Table 6",
    title="Examples",
    cells=cells,
    words={
        "marks": "error norm larger than 1.0 are highlighted in yellow and ... larger than 1.3 ... in red",
        "data": "Translation examples from the opus-100 dataset",
    },
    ours="one model for several directions, as the paper's examples begin with <2fr> and <2de>",
    families=(),
    text=text,
)
