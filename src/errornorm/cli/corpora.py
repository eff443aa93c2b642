"""Verbs about corpora: corrupt."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .printing import AsJson, Columns, Pair, column_names, example, out, print_json, print_table, say
from .printing import Corpus as CorpusFile


def _noise(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    try:
        return name, float(share)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not NAME=SHARE, such as untranslated=0.5") from None


@app.command(
    epilog=example(
        "errornorm corrupt train.en train.fr --noise untranslated=0.5 -o noisy.jsonl",
        "errornorm corrupt pairs.jsonl --noise misordered=0.1 --noise typos=0.1 --mode replace -o noisy.jsonl",
        "errornorm corrupt news.txt --target-field text --noise repetition=0.2 -o noisy.jsonl",
    )
)
def corrupt(
    corpus: CorpusFile,
    pair: Pair = None,
    noise: Annotated[
        list[Any],
        typer.Option(parser=_noise, metavar="NAME=SHARE", help="A noise and its share; may be repeated."),
    ] = [],  # noqa: B006
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="JSONL with labels.")] = Path(
        "noisy.jsonl"
    ),
    mode: Annotated[str, typer.Option(help="add: noisy copies beside all examples. replace: instead of some.")] = "add",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal files.")] = 0,
    source_field: Annotated[str, typer.Option(metavar="NAME", help="Field of the source text.")] = "source",
    target_field: Annotated[str, typer.Option(metavar="NAME", help="Field of the text to corrupt.")] = "target",
    columns: Columns = None,
    foreign: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sentences of another language, for wrong-language.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add noise to a corpus, with the truth about it.

    Noises: untranslated, misordered, misaligned, overtranslated, undertranslated, substituted, wrong-language, typos,
    repetition, truncated. Each example that is written says which noise it has, and which of its words are wrong.
    Lines that cannot be read are kept aside, with their numbers.
    """
    from ..data import corrupting
    from ..data.records import Corpus

    if not noise:
        raise typer.BadParameter("give at least one --noise NAME=SHARE, such as --noise untranslated=0.5")
    if len({name for name, _ in noise}) < len(noise):
        raise typer.BadParameter("a noise is given twice")
    form = Corpus(corpus, pair).format
    names = column_names(columns, corpus, pair, "--source-field and --target-field")
    by_form = {"text": [target_field], "pairs": [source_field, target_field]}
    done = corrupting.corrupt_file(
        Corpus(corpus, pair, columns=names or by_form.get(form)), output, dict(noise),
        mode=mode, seed=seed, source=source_field, target=target_field, foreign=foreign,  # type: ignore[arg-type]
    )  # fmt: skip
    if 2 * sum(num for reason, num in done.reasons.items() if reason.startswith("no partner")) > done.records:
        say(f"most lines have no partner: are {corpus} and {pair} the two sides of one corpus?")
    if as_json:
        print_json(asdict(done))
        return
    print_table(("noise", "examples", "share"), corrupting.summary(done))
    out(f"\n{done.records} records = {done.used} used + {done.quarantined} quarantined; {done.written} written")
    out(done.output)
    if done.quarantine:
        out(done.quarantine)
