"""Figure 6: translation after a share of the sentences was removed by loss, by error norm or at random."""

from __future__ import annotations

from pathlib import Path

from .. import drawing
from ..cells import Cell
from ..plan import BASELINE, Claim, Found, Item, Plan
from ..statistics import entries

NAME = "figure-pruning"
SCORES = {"loss": "nll_mean", "error norm": "error_norm_mean", "random": "random"}


def corpus(plan: Plan) -> str:
    """Several directions where the scale has them, as in the paper."""
    return "directions" if "directions" in plan.scale.tasks else "natural"


def cells(plan: Plan) -> list[Cell]:
    out, data = [], corpus(plan)
    for seed in plan.seeds:
        out.append(plan.scale.cell(NAME, BASELINE, "0%", data, seed=seed))
        for fraction in plan.scale.fractions:
            for name, score in SCORES.items():
                changes = {"prune": {"by": score, "fraction": fraction}}
                cell = plan.scale.cell(NAME, name, f"{fraction:.0%}", data, do="prune", seed=seed, changes=changes)
                out.append(cell)
    return out


def draw(found: Found, path: Path) -> None:
    table = entries(ITEM, found, "bleu")
    start = table.get(BASELINE, {}).get("0%")
    lines = {}
    for name in SCORES:
        row = table.get(name, {})
        points = [(0, start.mean)] * (start is not None) if start else []
        points += [(int(column.rstrip("%")), entry.mean) for column, entry in row.items()]
        lines[name] = ([x for x, _ in points], [float(y) for _, y in points])
    drawing.lines(lines, path, "% of the sentences removed", "BLEU")


ITEM = Item(
    name=NAME,
    where="Figure 6",
    title="Pruning sentences",
    cells=cells,
    measures={"BLEU, beam 5": "bleu", "BLEU, greedy": "bleu_greedy"},
    claims=(
        Claim("Truncating high error norm sentences achieves the best performance at all truncation fractions",
              "error norm", ("loss", "random")),
        Claim("outperforming randomly pruning for 2.43 BLEU and outperforming Loss Truncation by 0.88 BLEU when 60% of "
              "the data is pruned out", "error norm", ("loss", "random"), ("60%",)),
    ),
    words={
        "data": "Average BLEU results of 4 translation directions En-{De, Fr, It, Es} from the opus-100 dataset",
        "prune": "a fixed fraction of sentences pruned out according to different metrics",
    },
    ours="of each direction, by a model that learnt from all of it (the paper does not say by which); with local data "
    "of the one direction that has natural noise",
    families=(),
    figure=draw,
)  # fmt: skip
