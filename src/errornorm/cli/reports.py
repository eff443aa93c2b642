"""The verb about a page to look at: report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .printing import AsJson, example, out, print_json


@app.command(
    epilog=example(
        "errornorm report scores -o report.html",
        "errornorm report scores --group-by domain --figures figures",
    )
)
def report(
    scores: Annotated[Path, typer.Argument(metavar="SCORES", help="A folder that errornorm score made.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    group_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Of the records, such as site or meta.site.", show_default=False)
    ] = None,
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Instead of the name of the corpus.", show_default=False)
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", file_okay=False, help="The distributions as PNG, too.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a page to look at scores: one HTML file of at most 2 MB that needs nothing else.

    Distributions with a threshold to move, sentences in the colours of their tokens, sources side by side, lines that
    could not be read. Counts are of the whole corpus; the page says which of the sentences are in it.
    """
    from ..reporting.build import report as library

    done = library(scores, output, group_by=group_by, title=title, figures=figures)
    if as_json:
        print_json(asdict(done))
        return
    out(f"{done.records} records = {done.used} used + {done.quarantined} quarantined; {done.tokens} tokens")
    out(f"{done.sentences} of {done.used} sentences are in the page ({done.bytes / 1e6:.2f} MB)")
    for path in (done.output, *done.figures):
        out(path)
