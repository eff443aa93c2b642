"""The verb prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..data.visible import visible
from .app import app
from .printing import AsJson, example, out, print_json, print_table

if TYPE_CHECKING:
    from ..curation.prune import Pruned


@app.command(
    epilog=example(
        "errornorm prune scores --fraction 0.1 -o clean.jsonl",
        "errornorm prune scores --by error_norm_first --threshold 1.3 -o clean.en --output-pair clean.fr",
        "errornorm prune scores --fraction 0.1 --unit token -o weighted.jsonl",
        "errornorm prune scores --fraction 0.2 --unit source --group-by site",
    )
)
def prune(
    scores: Annotated[Path, typer.Argument(metavar="SCORES", help="A folder that `errornorm score` made.")],
    by: Annotated[
        str, typer.Option(metavar="SCORE", help="Such as error_norm, nll_max, error_norm_first, above; or random.")
    ] = "error_norm",
    fraction: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Drop exactly this share, the worst.", show_default=False)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Or drop all above this score; below, for p_target and margin.", show_default=False
        ),
    ] = None,
    unit: Annotated[str, typer.Option(help="What is dropped: sequence, token (by a weight of 0), or source.")] = (
        "sequence"
    ),
    group_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Of a record: its source, for --unit source.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The kept corpus, in the input's form. None: only look."),
    ] = None,
    output_pair: Annotated[Path | None, typer.Option(metavar="FILE", help="Its target side, for aligned text.")] = None,
    removed: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What was dropped, and why: JSONL. By default beside the output."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the scored corpus is now, if it was moved.")
    ] = None,
    pair: Annotated[Path | None, typer.Option(metavar="FILE", help="And its target side.")] = None,
    weights_field: Annotated[str, typer.Option(metavar="NAME", help="For --unit token: field of the weights.")] = (
        "token_weights"
    ),
    download: Annotated[bool, typer.Option("--download", help="Fetch the scored data set from the Hub again.")] = False,
    seed: Annotated[int, typer.Option(help="Of random: equal seeds drop the same.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Remove the worst texts, sources or tokens of a corpus by their scores.

    The kept corpus has the form of the input, line by line the same bytes. What was dropped goes to a second file,
    with the reason. With --unit token every text is kept, as JSONL with weights that `errornorm train` reads. At the
    end all records are counted anew: input = kept + pruned + quarantined.
    """
    from ..curation.prune import prune as library

    done = library(
        scores, by=by, fraction=fraction, threshold=threshold, unit=unit, group_by=group_by, seed=seed, output=output,
        output_pair=output_pair, removed=removed, corpus=corpus, pair=pair, weights_field=weights_field,
        download=download,
    )  # fmt: skip
    if as_json:
        print_json(done.to_dict())
        return
    _show(done)


def _show(done: Pruned) -> None:
    what = {"sequence": "texts", "token": "tokens", "source": "sources"}[done.unit]
    share = f" ({done.dropped / done.units:.2%})" if done.units else ""
    known = done.dropped and done.cutoff is not None and done.by != "random"
    cutoff = f"; the cutoff is {done.cutoff:.4g}" if known else ""
    out(f"dropped {done.dropped} of {done.units} {what}{share} by {done.by}{cutoff}")
    if done.unscored:
        apart = (
            "tokens without characters, which cannot be weighted" if done.unit == "token" else "texts without a score"
        )
        out(f"{done.unscored} {apart}, stay")
    if done.sources:
        out()
        print_table(
            ("dropped", "records", done.by), [(visible(g.name), str(g.records), f"{g.score:.4g}") for g in done.sources]
        )
        out()
    if done.next_source is not None:
        group = done.next_source
        out(f"the next one, {visible(group.name)}, has {group.records} records: more than is left of the fraction")
    out(
        f"{done.records} records = {done.kept} kept + {done.pruned} pruned + {done.quarantined} quarantined"
        + ("" if done.output else "; nothing was written, give -o FILE")
    )
    if done.limit is not None:
        out(f"of the corpus no more than {done.limit} records were scored (--limit); the others are in no file here")
    for path in (done.output, done.output_pair, done.removed):
        if path:
            out(path)
