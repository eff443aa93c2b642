"""Verbs that look at scores: summary."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..data.visible import visible
from .app import app
from .printing import MOST, AsJson, ScoresFolder, example, out, print_json, print_table, progress, span

if TYPE_CHECKING:
    from ..curation.summary import Summary


@app.command(
    epilog=example(
        "errornorm summary scores",
        "errornorm summary scores --group-by site --worst 20",
        "errornorm summary scores --group-by length --by error_norm_max --by nll_mean --json",
    )
)
def summary(
    scores: ScoresFolder,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Of the records, such as site or meta.site; or length.", show_default=False),
    ] = None,
    by: Annotated[
        list[str], typer.Option(metavar="SCORE", help="Of texts; groups are ranked by the first. May be repeated.")
    ] = ["error_norm_mean"],  # noqa: B006
    worst: Annotated[int, typer.Option(min=1, max=MOST, help="How many groups are printed.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=MOST, help="Of the resamples.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Rank sources by quality, estimate how much is noise, and say what to do about it.

    Groups are ranked by the lower end of the interval of their mean score, so that a few texts do not lead. All
    intervals are 95 %, with texts as the units.
    """
    from ..curation import summary as library

    with progress() as tell:
        tell("reading the scores")
        found = library.summarize(scores, group_by=group_by, by=by, seed=seed)
    if as_json:
        print_json(found.as_dict(worst))
        return
    shares = {"tokens_above": f"tokens above {found.settings['cutoff']:g}"}
    if found.noise.visible:
        shares["noise_rate"] = "noisy texts"
    scored = found.settings["by"]
    header = ["group", "texts", "tokens", *(title for name in scored for title in (name, "95 %")), *shares.values()]
    print_table(header, [_cells(row, scored, list(shares)) for row in (*found.groups[:worst], found.whole)])
    if len(found.groups) > worst:
        out(f"\n{len(found.groups) - worst} more groups; --worst {len(found.groups)} shows all")
    out()
    print_advice(found, scores)


def print_advice(found: Summary, scores: Path) -> None:
    """How much is noise, and what to do about it."""
    for sentence in (*found.findings, *found.advice.sentences):
        out(sentence)
    for command in found.advice.commands:
        out(f"  {command.replace('SCORES', shlex.quote(str(scores)))}")


def _cells(row: dict[str, Any], scored: list[str], shares: list[str]) -> list[str]:
    cells = [visible(row["group"], 40), str(row["texts"]), str(row["tokens"])]
    for name in scored:
        cells += ["-" if row[name] is None else f"{row[name]:.3f}", span(row, name)]
    return [*cells, *(_percent(row, name) for name in shares)]


def _percent(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.1%}" if low is None else f"{row[name]:.1%} ({low:.1%} to {high:.1%})"
