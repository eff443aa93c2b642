"""Table 6: sentences with the tokens of large error norm marked."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from errornorm.reporting.grid import RED, YELLOW
from errornorm.tables import table

from ..cells import Cell
from ..plan import Found, Item, Plan
from .figure_pruning import corpus

NAME = "examples"
MARKS = (("", ""), ("<mark>", "</mark>"), ("<mark><b>", "</b></mark>"))  # none, yellow, red


def cells(plan: Plan) -> list[Cell]:
    return [plan.scale.cell(NAME, "MLE", "", corpus(plan), do="highlight")]


def text(found: Found) -> str:
    ((_, row),) = found
    lines = [(escape(s["source"], quote=False), _marked(s["tokens"])) for s in row["sentences_shown"]]
    about = f"<mark>Marked</mark> above {YELLOW} (the paper's yellow), <mark><b>bold</b></mark> above {RED} (red):"
    return f"{about}\n\n{table(('source', 'target'), lines)}"


def _marked(tokens: Sequence[tuple[str, float]]) -> str:
    """Neighbours of one colour are one mark. It is HTML, because Markdown cannot emphasize parts of a word."""
    words = ((text, norm if text.strip() else 0) for text, norm in tokens)
    colours = groupby(words, lambda token: (token[1] > YELLOW) + (token[1] > RED))
    return "".join(_in_colour(colour, "".join(text for text, _ in run)) for colour, run in colours)


def _in_colour(colour: int, text: str) -> str:
    bare = text.strip()
    before, after = MARKS[colour]
    return text.replace(bare, f"{before}{escape(bare, quote=False)}{after}", 1)


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
