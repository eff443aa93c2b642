"""Figure 4: how far loss and error norm tell clean tokens from noisy ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from errornorm.tables import table

from .. import drawing
from ..cells import Cell
from ..plan import Found, Item, Plan

NAME = "figure-separation"
NOISES = ("untranslated", "misordered", "substituted")
HUMAN: dict[str, Any] = {"labels": "labels", "level": "word", "score": {"of": "mlqe", "pair": "en-de"}}
SCORES = {"nll": "loss", "error_norm": "error norm"}


def cells(plan: Plan) -> list[Cell]:
    """Noise that was put in, under a model that learnt from it; natural noise, whose labels are of sentences; words
    that people marked as wrong, under a model of the same languages."""
    out = [
        plan.scale.cell(NAME, noise, "tokens", "translation", do="separate", noise=((noise, 0.2),),
                        changes={"labels": "labels"})
        for noise in NOISES
    ]  # fmt: skip
    if plan.scale.name != "paper":  # which asks for no local data here
        changes = {"labels": "label", "level": "sentence"}
        out.append(plan.scale.cell(NAME, "natural", "sentences", "natural", do="separate", changes=changes))
    if plan.scale.name == "small":
        human = HUMAN | {"recipe.languages": ["de"]}
        out.append(plan.scale.cell(NAME, "human labels, en-de", "words", "bilingual", do="separate", changes=human))
    return out


def text(found: Found) -> str:
    lines = []
    for cell, row in found:
        level = "" if cell.column == "tokens" else "_mean"
        by_score = {part["score"]: part for part in row["detection"]}
        for score, title in SCORES.items():
            part = by_score[score + level]
            low, high = part.get("auroc_low"), part.get("auroc_high")
            interval = f" ({low:.3f} to {high:.3f})" if low is not None and high is not None else ""
            lines.append((f"{cell.row}, {cell.column}", title, f"{part['units']:,}", f"{part['base_rate']:.0%}",
                          f"{part['auroc']:.3f}{interval}", f"{part['overlap']:.3f}"))  # fmt: skip
    return table(("noise", "score", "units", "noisy", "AUROC", "overlap of the histograms"), lines) + (
        "\n\nThe paper: “The overlap between clean and noisy distributions of loss is larger than the overlap of error "
        "norm”. Human labels under a larger model are in docs/detect.md."
    )


def draw(found: Found, path: Path) -> None:
    drawing.histograms({cell.row: row["histograms"] for cell, row in found}, path)


ITEM = Item(
    name=NAME,
    where="Figure 4",
    title="Clean and noisy tokens",
    cells=cells,
    words={
        "data": "300 examples from the Gigaword text summarization dataset",
        "model": "evaluated by a pre-trained BART-large model",
    },
    ours="we know of no public copy of those labels, so this is noise that was put in or found, under the model of "
    "Table 1 that learnt from it, and words that other people marked; for other models and labels there are `errornorm "
    "score` and `errornorm detect`",
    families=(),
    figure=draw,
    text=text,
)
