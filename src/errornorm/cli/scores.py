"""Verbs about scores: score."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .printing import MOST, AsJson, Columns, Corpus, Pair, column_names, example, out, print_json, print_table, progress


@app.command(
    epilog=example(
        "errornorm score train.en train.fr --model runs/first -o scores",
        "errornorm score news.txt --model my-language-model -o scores --advise",
        "errornorm score sft.jsonl --model my-model --context-field prompt --text-field completion -o scores",
        'errornorm score pairs.jsonl --model my-model --prompt "{document} TL;DR: " --text-field summary -o scores',
    )
)
def score(
    corpus: Corpus,
    pair: Pair = None,
    *,
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="A run directory, or a folder with a model.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Of the table.")] = Path("scores"),
    text_field: Annotated[
        str | None, typer.Option(metavar="NAME", help="Field that is scored; target, or text.", show_default=False)
    ] = None,
    context_field: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Field that the model reads before it; source, or none.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Instead of it, a text with {fields} in braces.", show_default=False),
    ] = None,
    columns: Columns = None,
    cutoff: Annotated[
        float, typer.Option(help="Tokens with a larger error norm get their rank and the model's own choices.")
    ] = 1.1,
    alternatives: Annotated[int, typer.Option(min=0, max=MOST, help="How many of those.")] = 5,
    max_length: Annotated[
        int | None, typer.Option(min=2, max=MOST, help="Most tokens read at once; the model's own.", show_default=False)
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="fr", help="Target language of a multilingual model.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MOST, help="Score so many records.")] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Such as cuda:1.", show_default=False)] = None,
    dtype: Annotated[str, typer.Option(metavar="NAME", help="float32, float64, bfloat16 or float16.")] = "float32",
    batch_tokens: Annotated[int, typer.Option(min=1, max=MOST, help="Of a batch, padding included.")] = 4096,
    part: Annotated[
        int, typer.Option(min=1, max=MOST, help="Records of a part, which is what a killed process loses.")
    ] = 1000,
    engine: Annotated[str, typer.Option(help="local, or ray: many processes, on one machine or several.")] = "local",
    workers: Annotated[int, typer.Option(min=0, max=MOST, help="Of ray; 0: one for each processor or GPU.")] = 0,
    advise: Annotated[
        bool, typer.Option("--advise", help="Say how much is noise and what to do, as errornorm summary does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score every token of a corpus: loss, error norm, entropy, and what the model would have written.

    The table has one row for each record, with its tokens, words and means; its columns are in docs/score.md. A run
    that was stopped or killed goes on when the same command is given again, to the same bytes. Lines that cannot be
    read are kept aside, with their numbers.
    """
    from ..training.locks import Lock

    names = column_names(columns, corpus, pair, "--text-field and --context-field")
    Lock(output).require_free()
    from ..curation import summary
    from ..scoring import overview, run, table
    from .summaries import print_advice

    source: dict[str, Any] = {"path": corpus, "pair": pair, "columns": names}
    began = time.monotonic()
    seen = run.Progress(0, 0, 0)
    with progress(every=10.0) as tell:

        def told(now: run.Progress) -> None:
            nonlocal seen
            seen = now
            rate = now.tokens / (time.monotonic() - began)
            tell(f"{now.records:,} records read, {now.tokens:,} tokens scored, {rate:,.0f} tokens/s")

        scores = run.score(
            source, model, output, text_field=text_field, context_field=context_field, prompt=prompt, cutoff=cutoff,
            alternatives=alternatives, max_length=max_length, to=to, device=device, dtype=dtype, limit=limit, part=part,
            tokens=batch_tokens, engine=engine, workers=workers, command=["errornorm", *sys.argv[1:]],
            tell=told,
        )  # fmt: skip
    assert isinstance(scores, table.Scores)
    found = summary.summarize(scores) if advise else None
    if as_json:
        more = found.as_dict() if found is not None else {}
        print_json({**scores.meta, **{name: more[name] for name in ("noise", "advice") if name in more}})
        return
    print_table(("what", "mean", "highest"), overview.overview(scores))
    meta = scores.meta
    counts = f"{meta['records']} records = {meta['used']} used + {meta['quarantined']} quarantined"
    out(f"\n{counts}; {meta['tokens']} tokens, {meta['words']} words")
    if scores.quarantine:
        out(scores.quarantine)
    out(output)
    if found is not None:
        out()
        print_advice(found, output)
