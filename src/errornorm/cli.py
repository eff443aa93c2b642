"""The command line. A verb parses, calls one library function, prints; torch is imported by the verbs that need it."""

from __future__ import annotations

import errno
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from . import __version__

EXITS = {
    0: "done",
    1: "a bug: run again with --debug and report what it says",
    2: "usage: an option or argument is wrong, or an extra is not installed",
    3: "data: a file is missing, not readable, or not what it should be",
    4: "numerics: NaN or Inf where a number should be",
    5: "resources: out of memory, or the disk is full",
    130: "stopped by Ctrl-C",
}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}

# Typer's own copy of click, or click itself, whichever this version stands on.
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])


def _verbatim(text: str) -> str:
    """Keep the lines of a help text as they are."""
    return "\b\n" + text.strip("\n")


def _example(*commands: str) -> str:
    return _verbatim("\n".join(["Examples:" if len(commands) > 1 else "Example:", *(f"  {c}" for c in commands)]))


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(
        [
            _example("errornorm demo", "errornorm methods ent_fraction", "errornorm bench --size 512,256,8000"),
            _verbatim("Exit codes:\n" + "\n".join(f"  {code:<4} {about}" for code, about in EXITS.items())),
        ]
    ),
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(slots=True)
class Run:
    """What holds for every verb."""

    debug: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code."""
    run = Run()
    try:
        code = app(sys.argv[1:] if argv is None else list(argv), prog_name="errornorm", obj=run, standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except SystemExit:  # Typer's answer to a reader that left, as `head` does
        return 0
    except BrokenPipeError:  # the same, at the flush: do not fail once more while closing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if run.debug:
            traceback.print_exc()
        code, message = explain(error)
        _say(message)
    if code == 130:
        _say("stopped by Ctrl-C; no half-written file is left")
    return int(code or 0)


def explain(error: Exception) -> tuple[int, str]:
    """The exit code of an error, and one line about it."""
    if isinstance(error, UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "errornorm"
        return 2, f"{cast(Any, error).format_message().rstrip('.')}; see {command} --help"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FloatingPointError):
        return 4, text
    if type(error).__name__ == "DataError":  # by name: the verbs import what they need
        return 3, text
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return 5, f"out of memory ({text}): try a smaller size"
    if isinstance(error, OSError):
        where = f"{error.strerror or text}: {error.filename or 'a file'}"
        if error.errno in FULL:
            return 5, f"{where}: make room, or choose another place"
        return 3, f"{where}: check the path and your permissions"
    if isinstance(error, (json.JSONDecodeError, UnicodeError)):
        return 3, text
    if isinstance(error, (ValueError, ImportError)):
        return 2, text
    return 1, f"{type(error).__name__}: {text}: this is a bug, run again with --debug"


@app.callback(invoke_without_command=True)
def errornorm(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Robust training of text-generation models on noisy data: exact, fused Error Norm Truncation for PyTorch."""
    context.obj.debug = debug
    if version:
        print(f"errornorm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog=_example("errornorm methods", "errornorm methods ent_fraction", "errornorm methods tailr --json"))
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the card of this method.", show_default=False)] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown; of all methods, docs/methods.md.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the methods, or show the card of one.

    A method is a named objective. Its card holds the equation, the parameters with the values that papers use, and the
    reference.
    """
    from . import cards

    found = cards.cards() if name is None else [cards.card(name)]
    if as_json:
        _print_json([asdict(card) for card in found] if name is None else asdict(found[0]))
    elif name is not None:
        _print_markdown(found[0].markdown(), raw=markdown)
    elif markdown:
        print(cards.page(), end="")
    else:
        _print_table(("method", "what it does"), [(card.name, card.summary) for card in found])


@app.command(epilog=_example("errornorm kernels", "errornorm kernels --json"))
def kernels(as_json: AsJson = False) -> None:
    """List the kernels.

    A kernel is one way of computing statistics and their gradient. Every method runs on every kernel.
    """
    from .surface import KERNELS

    if as_json:
        _print_json([asdict(kernel) for kernel in KERNELS.values()])
    else:
        rows = [(kernel.name, " or ".join(kernel.takes), kernel.about) for kernel in KERNELS.values()]
        _print_table(("kernel", "takes", "what it is"), rows)


def _size(text: str) -> tuple[int, int, int]:
    try:
        tokens, hidden, vocab = (int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not tokens,hidden size,vocabulary, such as 2048,512,32000") from None
    return tokens, hidden, vocab


@app.command(
    epilog=_example("errornorm bench", "errornorm bench --size 512,256,8000 --size 2048,512,32000 --repeat 10")
)
def bench(
    size: Annotated[
        list[Any],
        typer.Option(parser=_size, metavar="N,D,V", help="Tokens, hidden size and vocabulary; may be repeated."),
    ] = ["2048,512,32000"],  # noqa: B006
    repeat: Annotated[int, typer.Option(help="Rounds; in each, everyone takes one step.")] = 5,
    threads: Annotated[int, typer.Option(help="For torch. With 1, CPU time is measured; with more, wall time.")] = 1,
    fraction: Annotated[float, typer.Option(help="Share of the tokens that truncating methods drop.")] = 0.1,
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", file_okay=False, help="Where bench.json and bench.png go.")
    ] = Path("errornorm-bench"),
    as_json: AsJson = False,
) -> None:
    """Measure a training step of head and loss.

    Time, peak memory and error against float64, beside plain cross-entropy, the paper's formula, other fused losses
    that are installed, and three bare matrix products, which are the floor.
    """
    from . import bench as library

    with _progress() as tell:
        result = library.run(size, fraction, repeat, threads, output=output, progress=tell)
    if as_json:
        print(result.to_json(), end="")
    else:
        print(f"{library.table(result)}\n\n{output / 'bench.json'}\n{output / 'bench.png'}")


def _noise(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    try:
        return name, float(share)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not NAME=SHARE, such as untranslated=0.5") from None


@app.command(
    epilog=_example(
        "errornorm corrupt train.en train.fr --noise untranslated=0.5 -o noisy.jsonl",
        "errornorm corrupt pairs.jsonl --noise misordered=0.1 --noise typos=0.1 --mode replace -o noisy.jsonl",
        "errornorm corrupt news.txt --target-field text --noise repetition=0.2 -o noisy.jsonl",
    )
)
def corrupt(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="JSONL, TSV, text or Parquet; .gz, .zst too.")],
    pair: Annotated[
        Path | None, typer.Argument(metavar="PAIR", help="Target side of aligned text.", show_default=False)
    ] = None,
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
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns of a TSV without a first line of names.")
    ] = None,
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
    from .data import files
    from .data.records import Corpus

    if not noise:
        raise typer.BadParameter("give at least one --noise NAME=SHARE, such as --noise untranslated=0.5")
    if len({name for name, _ in noise}) < len(noise):
        raise typer.BadParameter("a noise is given twice")
    form = Corpus(corpus, pair).format
    if columns and form != "tsv":
        raise typer.BadParameter("--columns is for a TSV; elsewhere use --source-field and --target-field")
    by_form = {"text": [target_field], "pairs": [source_field, target_field]}
    done = files.corrupt_file(
        Corpus(corpus, pair, columns=columns.split(",") if columns else by_form.get(form)), output, dict(noise),
        mode=mode, seed=seed, source=source_field, target=target_field, foreign=foreign,  # type: ignore[arg-type]
    )  # fmt: skip
    if as_json:
        _print_json(asdict(done))
        return
    _print_table(("noise", "examples", "share"), files.summary(done))
    print(f"\n{done.records} records = {done.used} used + {done.quarantined} quarantined; {done.written} written")
    print(done.output)
    if done.quarantine:
        print(done.quarantine)


@app.command(epilog=_example("errornorm demo", "errornorm demo --output my-demo --json"))
def demo(
    output: Annotated[Path, typer.Option(metavar="FOLDER", file_okay=False, help="Where demo.png goes.")] = Path(
        "errornorm-demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Show the core at work, within seconds.

    Three targets with equal loss and different error norm; what truncation does to a small corpus with known errors;
    and a picture of both.
    """
    from . import demo as library

    with _progress() as tell:
        result = library.run(output, tell=tell)
    if as_json:
        _print_json(result.as_dict())
    else:
        for table in result.tables():
            print(f"{table.title}\n")
            _print_table(table.header, table.rows)
            print(f"\n{textwrap.fill(table.note, 100)}\n")
    if result.picture is None:
        _say(library.NO_MATPLOTLIB)
    elif not as_json:
        print(result.picture)


def _say(message: str) -> None:
    print(f"errornorm: {message}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_markdown(text: str, raw: bool) -> None:
    if raw or not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """By rich on a terminal; elsewhere one line per row, for grep and the like."""
    numbers = [all(cell[:1].isdigit() or cell == "-" for cell in column) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name, numeric in zip(header, numbers, strict=True):
            table.add_column(name, justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*row)
        Console(markup=False, highlight=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for line in (header, ["-" * width for width in widths], *rows):
        columns = zip(line, widths, numbers, strict=True)
        print("  ".join(c.rjust(width) if number else c.ljust(width) for c, width, number in columns).rstrip())


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on the terminal about what is going on; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


if __name__ == "__main__":
    sys.exit(main())
