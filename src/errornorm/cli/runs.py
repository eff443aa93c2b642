"""Verbs about runs: train, evaluate, generate, compare, demo."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..data.visible import json_text, plain
from .app import app
from .printing import (
    MOST,
    AsJson,
    Columns,
    Corpus,
    Pair,
    column_names,
    example,
    out,
    print_json,
    print_table,
    progress,
    say,
    shown,
)

Beams = Annotated[int, typer.Option(min=1, max=1000, help="Of the search; 1 is greedy.")]
MaxNew = Annotated[int, typer.Option(min=1, max=MOST, help="Longest output, in tokens.")]
Flores = Annotated[
    Path | None, typer.Option(metavar="FILE", help="SentencePiece model of flores200.", show_default=False)
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A run directory, or a folder with a model.")]
Task = Annotated[
    str | None, typer.Option(metavar="NAME", help="translation, summarization or language-modeling, if unknown.")
]


@app.command(
    epilog=example(
        "errornorm train run.yaml",
        'errornorm train run.yaml --set objective="ent_fraction(0.1, start=500)" --set output=runs/ent',
        "errornorm train run.yaml --resume",
        "errornorm train run.yaml --dry-run",
        "torchrun --nproc-per-node 2 -m errornorm.cli train run.yaml",
    )
)
def train(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="YAML; see docs/config.md.")] = None,
    sets: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated.")
    ] = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped or killed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would take (steps, time, memory, disk); write nothing.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of CONFIG, for editors.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on noisy text, evaluate it, and save it.

    The run directory gets the configuration, a manifest, metrics, curves, checkpoints and the model. Ctrl-C,
    SIGTERM and SIGHUP save a checkpoint first; --resume goes on from the last one, to the same result.
    """
    if config is not None and not (schema or dry_run):
        from ..training import glance

        glance.refuse_busy(config, sets)
    from ..training import configfile

    if schema:
        print_json(configfile.schema())
        return
    if config is None:
        raise typer.BadParameter("give a configuration file, such as run.yaml")
    settings = configfile.load(config, sets)
    from ..training import dry, progress, run

    teller = progress.choose()
    if dry_run:
        estimate = dry.estimate(settings, teller)
        print_json(estimate) if as_json else print_table(("what", "estimate"), dry.table(estimate))
        return
    rows = run.train(settings, resume=resume, command=["errornorm", *sys.argv[1:]], progress=teller)
    if not run.is_main():
        return
    if as_json:
        print_json(rows)
        return
    if measured := shown(rows):
        print_table(("measure", *(f"seed {row['seed']}" for row in rows)), measured)
        out()
    out(settings.output)


@app.command(
    epilog=example(
        "errornorm evaluate runs/first test.en test.fr",
        "errornorm evaluate runs/first test.jsonl --beams 1 --output greedy.jsonl --json",
        "errornorm evaluate my-model-folder news.txt --metric likelihood",
    )
)
def evaluate(
    model: ModelFolder,
    corpus: Corpus,
    pair: Pair = None,
    metric: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="likelihood, bleu, chrf, rouge or copies; by the task if not given."),
    ] = [],  # noqa: B006
    beams: Beams = 5,
    max_new_tokens: MaxNew = 128,
    limit: Annotated[int | None, typer.Option(min=1, max=MOST, help="Evaluate on so many records.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Outputs as JSONL.")] = None,
    task: Task = None,
    languages: Annotated[str | None, typer.Option(metavar="en-fr", help="Of a multilingual model.")] = None,
    source_field: Annotated[str, typer.Option(metavar="NAME", help="Field of the source text.")] = "source",
    target_field: Annotated[str, typer.Option(metavar="NAME", help="Field of the reference.")] = "target",
    text_field: Annotated[
        str, typer.Option(metavar="NAME", help="Field of the text, for language modelling.")
    ] = "text",
    columns: Columns = None,
    tokenize: Annotated[str, typer.Option(metavar="NAME", help="Tokenization of BLEU.")] = "13a",
    flores_model: Flores = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model: perplexity, BLEU, chrF, ROUGE, and the share of outputs that copy their source."""
    from ..data.files import real, require_place, written

    names = column_names(columns, corpus, pair, "--source-field, --target-field and --text-field")
    quarantine = output and real(output.with_name(output.name + ".quarantine.jsonl"))
    for place in (output, quarantine):
        if place is not None:
            require_place(place, corpus, pair)
    from ..training import use
    from ..training.config import Source

    if languages is not None and not re.fullmatch(r"[^\s-]+-[^\s-]+", languages):
        raise typer.BadParameter(f"--languages {languages!r} is not of the form en-fr")
    source = Source(
        path=corpus, pair=pair, languages=languages, source_field=source_field, target_field=target_field,
        text_field=text_field, columns=names,
    )  # fmt: skip
    with progress() as tell:
        tell("loading the model")
        row, verdict = use.evaluate(
            model, source, metrics=metric or None, task=task, beams=beams, max_new_tokens=max_new_tokens, limit=limit,
            tokenize=tokenize, flores_model=flores_model, quarantine=quarantine,
            tell=lambda done: tell(f"{done} outputs"),
        )  # fmt: skip
    if output is not None:
        with written(real(output)) as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in verdict.outputs)
    if as_json:
        print_json(row)
        return
    print_table(("measure", "value"), shown([row]))
    for name, text in row["signatures"].items():
        out(f"{name}: {text}")
    if row["quarantined"]:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in row["reasons"].items())
        where = f"they are in {quarantine}" if quarantine else "--output FILE also writes which"
        say(f"{row['quarantined']} of {row['records']} records could not be used ({reasons}); {where}")


@app.command(
    epilog=example(
        "errornorm generate runs/first news.en --output news.fr",
        "echo 'a dog runs' | errornorm generate runs/first",
        "errornorm generate runs/multilingual news.en --to de",
    )
)
def generate(
    model: ModelFolder,
    text: Annotated[Path, typer.Argument(metavar="TEXT", help="A text per line; - is the standard input.")] = Path("-"),
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of printing.")] = None,
    beams: Beams = 5,
    max_new_tokens: MaxNew = 128,
    to: Annotated[str | None, typer.Option(metavar="LANGUAGE", help="Of a multilingual model, such as fr.")] = None,
    task: Task = None,
    as_json: AsJson = False,
) -> None:
    """Translate, summarize or continue lines of text."""
    from contextlib import nullcontext

    from ..data.files import real, require_place, written
    from ..data.lines import Problem

    if output is not None:
        require_place(output, text)
    from ..training import use

    def unreadable(problem: Problem) -> None:
        say(f"{problem.where}: {problem.reason}: its output is an empty line")

    lines = use.readable(sys.stdin.buffer if text == Path("-") else text, unreadable)
    watched = output is None and sys.stdout.isatty()
    with written(real(output)) if output else nullcontext(sys.stdout) as file:
        for result in use.generate(model, lines, beams=beams, max_new_tokens=max_new_tokens, to=to, task=task):
            one_line = json_text({"output": result}) if as_json else " ".join(result.split("\n"))
            print(plain(one_line) if watched else one_line, file=file, flush=True)


@app.command(
    epilog=example("errornorm compare runs/*", "errornorm compare runs/mle runs/ent --metric bleu --output compare.png")
)
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories; of several seeds, their folder.")
    ],
    baseline: Annotated[str, typer.Option(metavar="METHOD", help="What the others are compared with.")] = "mle",
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="What the bars show.", show_default=False)] = None,
    samples: Annotated[int, typer.Option(min=10, max=MOST, help="Of the bootstrap.")] = 1000,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The picture.")] = Path("compare.png"),
    flores_model: Flores = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods over seeds: mean, standard deviation, and paired bootstrap against a baseline."""
    from ..data.files import require_place

    require_place(output)
    from .. import comparison

    found = comparison.compare(runs, baseline, metric, samples, flores_model=flores_model)
    found.draw(output)
    if as_json:
        print_json(found.as_dict())
        return
    print_table(*found.rows())
    for note in (*found.notes, *(f"{folder} is not finished: left out" for folder in found.unfinished)):
        say(note)
    out(f"\n{output}")


@app.command(
    epilog=example("errornorm demo", "errornorm demo --source en.txt --target fr.txt", "errornorm demo --seed 3 --json")
)
def demo(
    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own text, one sentence per line.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its translation, line by line.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of data, weights and order.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", file_okay=False, help="An earlier demo is replaced.")
    ] = Path("errornorm-demo"),
    as_json: AsJson = False,
) -> None:
    """Train six methods on text full of untranslated copies, and see which of them translate.

    The default is a small bilingual world of captions, offline, in less than three minutes on two cores. Half as many
    copies as there are pairs are added. With --source and --target the same is done with your own text.
    """
    if (source is None) != (target is None):
        raise typer.BadParameter("--source and --target belong together: give both")
    from ..demo import run as library

    files = ["--source", str(source), "--target", str(target)] if source else []
    command = shlex.join(["errornorm", "demo", *files, *(["--seed", str(seed)] if seed else [])])
    with progress(every=10) as tell:
        done = library.run(output, source=source, target=target, seed=seed, command=command, tell=tell)
    if as_json:
        print_json(done.as_dict())
        return
    print_table(*done.table())
    out(f"\n{done.seconds:.0f} seconds; what happened, and why: {done.page}")
