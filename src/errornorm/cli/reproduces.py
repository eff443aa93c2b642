"""The verb reproduce: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .app import app
from .printing import MOST, AsJson, example, out, print_json, print_markdown, print_table, progress, say

if TYPE_CHECKING:
    from errornorm_reproduce.run import Reproduced


@app.command(
    epilog=example(
        "errornorm reproduce",
        "errornorm reproduce table-untranslated --scale small --data corpora --seeds 3 --jobs 2",
        "errornorm reproduce table-lm --scale paper --dry-run",
        "errornorm reproduce table-lm --method-file my.py --method MLE --method mine",
        "errornorm reproduce --page docs",
    )
)
def reproduce(
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Tables and figures; without, list them.")] = [],  # noqa: B006
    scale: Annotated[
        str, typer.Option(metavar="NAME", help="tiny (seconds), small (minutes) or paper (GPUs).")
    ] = "tiny",
    data: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Local corpora, for small.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="How many, from 0.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, max=MOST, help="Cells at a time, each with one thread.")] = 1,
    method: Annotated[list[str], typer.Option(metavar="NAME", help="Only these rows; may be repeated.")] = [],  # noqa: B006
    method_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Python file with METHODS: more rows.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Rows and figures; docs/results/reproduce if there is one, else errornorm-results."
        ),
    ] = None,
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="Runs; may be removed later.")] = Path(
        "errornorm-reproduce"
    ),
    slurm: Annotated[str | None, typer.Option(metavar="PARTITION", help="Submit cells as jobs, by submitit.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take; run nothing.")] = False,
    page: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write results.md and .html from the rows.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the paper's tables and figures, and print its numbers beside ours.

    Rows that are there are not run again; what was stopped goes on. Cells that fail are named at the end.
    """
    from errornorm.training.together import rank
    from errornorm_reproduce import dry, run
    from errornorm_reproduce.items import ITEMS

    if not items and page is None:
        there = [(i.name, i.where, i.title) for i in ITEMS.values()]
        if as_json:
            print_json([dict(zip(("item", "where", "title"), row, strict=True)) for row in there])
        else:
            print_table(("item", "in the paper", "what"), there)
        return
    results = results or run.usual_results()
    asked = run.Asked(scale, data, seeds, jobs, results, work, tuple(method), method_file, slurm)
    answers: list[dict[str, Any]] = []
    failed = 0
    for item in [run.item_of(name) for name in (ITEMS if items == ["all"] else items)]:
        if dry_run:
            found = dry.estimate(item, plan := asked.plan(), run.choices(item, plan))
            command, words = dry.command(item.name, asked, dry.needs_data(item, plan)), dict(dry.words(item, plan))
            answers.append({"item": item.name, "runs": found, "words": words, "command": command})
            _print_dry(answers[-1], as_json)
            continue
        with progress(every=None if rank() else 0) as tell:
            done = run.reproduce(item.name, asked, tell)
        if rank():  # of several ranks one speaks; a launcher would stop it if another one ended with an error
            continue
        answers.append(_answer(item.name, done))
        _print_done(done, as_json)
        if slurm is not None:
            say(f"{len(done.jobs)} jobs submitted: call it again for what comes next, and for the table")
        failed += len(done.outcome.failed)
    if rank():
        return
    if page is not None and not dry_run:
        from errornorm_reproduce import page as pages

        for path in pages.write(page, results):
            say(f"wrote {path}")
            answers.append({"page": str(path)})
    if as_json:
        print_json(answers)
    if failed:
        raise typer.Exit(6)


def _print_dry(answer: dict[str, Any], as_json: bool) -> None:
    from errornorm_reproduce import dry

    if as_json:
        return
    if answer["runs"]:
        print_table(*dry.table(answer["runs"]))
    print_table(("setting", "the paper, or why not"), list(answer["words"].items()))
    say(dry.ASSUMED)
    out(f"\n{answer['command']}")


def _answer(name: str, done: Reproduced) -> dict[str, Any]:
    outcome = done.outcome
    return {
        "item": name,
        "text": done.text,
        "figure": str(done.figure) if done.figure else None,
        "done": [cell.hash for cell in outcome.done],
        "before": [cell.hash for cell in outcome.before],
        "elsewhere": [cell.hash for cell in outcome.elsewhere],
        "failed": [{"cell": cell.name, "why": why} for cell, why in outcome.failed],
        "jobs": list(done.jobs),
    }


def _print_done(done: Reproduced, as_json: bool) -> None:
    if not as_json:
        print_markdown(done.text, raw=False)
        if done.figure:
            say(f"drew {done.figure}")
    for cell, why in done.outcome.failed:
        say(f"failed: {cell.name}: {why}")
    for cell in done.outcome.elsewhere:
        say(f"another process has {cell.name}: start again when it is done")
