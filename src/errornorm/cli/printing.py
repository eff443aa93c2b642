"""How verbs speak: tables, JSON, Markdown, progress, and the texts of --help."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.visible import json_text, plain

Corpus = Annotated[Path, typer.Argument(metavar="CORPUS", help="JSONL, TSV, text or Parquet; .gz, .zst too.")]
Pair = Annotated[Path | None, typer.Argument(metavar="PAIR", help="Target side of aligned text.", show_default=False)]
Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Columns of a TSV without a first line of names.", show_default=False),
]
ScoresFolder = Annotated[Path, typer.Argument(metavar="SCORES", help="A folder that errornorm score has made.")]
MOST = 2**31 - 1  # of any number of things
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def verbatim(text: str) -> str:
    """Keep the lines of a help text as they are."""
    return "\b\n" + text.strip("\n")


def example(*commands: str) -> str:
    return verbatim("\n".join(["Examples:" if len(commands) > 1 else "Example:", *(f"  {c}" for c in commands)]))


def say(message: str) -> None:
    """A line for people, beside what a verb prints."""
    print(f"errornorm: {plain(message, keep='')}", file=sys.stderr)


class Said(logging.Handler):
    """What libraries log, said as everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        for line in record.getMessage().split("\n"):
            say(line)


def out(text: object = "", end: str = "\n") -> None:
    """What a verb prints. It may name what stands in a corpus, so nothing in it may steer the terminal."""
    print(plain(str(text)), end=end)


def print_json(value: Any) -> None:
    print(json_text(value, indent=2))


def print_markdown(text: str, raw: bool) -> None:
    text = plain(text)
    if raw or not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def column_names(columns: str | None, corpus: Path, pair: Path | None, instead: str) -> list[str] | None:
    """Of a TSV; other formats have none.

    Args:
        instead: The options that name their fields.
    """
    from ..data import records

    names = columns.split(",") if columns else None
    if names and records.Corpus(corpus, pair, columns=names).format != "tsv":
        raise typer.BadParameter(f"--columns is for a TSV; elsewhere use {instead}")
    return names


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """By rich on a terminal; elsewhere one line per row, for grep and the like."""
    header, rows = [plain(name, keep="") for name in header], [[plain(cell, keep="") for cell in row] for row in rows]
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
def progress(every: float | None = None) -> Iterator[Callable[[str], None]]:
    """A line on the terminal about what is going on; elsewhere silent, or a line every so many seconds."""
    if not sys.stderr.isatty():
        yield (lambda text: None) if every is None else _now_and_then(every)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting") as status:
        yield lambda text: status.update(Text(plain(text, keep="")))


def _now_and_then(every: float) -> Callable[[str], None]:
    last = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            print(plain(text), file=sys.stderr, flush=True)

    return tell


MEASURES = {  # name in a result row -> title and format
    "num": ("texts", "{:d}"),
    "nll": ("nll per token", "{:.4f}"),
    "perplexity": ("perplexity", "{:.2f}"),
    "bleu": ("BLEU", "{:.1f}"),
    "chrf": ("chrF", "{:.1f}"),
    "rouge1": ("ROUGE-1", "{:.1f}"),
    "rouge2": ("ROUGE-2", "{:.1f}"),
    "rougeLsum": ("ROUGE-Lsum", "{:.1f}"),
    "copies": ("copies of the source", "{:.1%}"),
}


def shown(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Result rows as the columns of a table."""
    names = [name for name in MEASURES if any(name in row for row in rows)]
    return [[MEASURES[n][0], *(MEASURES[n][1].format(r[n]) if n in r else "-" for r in rows)] for n in names]


def span(row: dict[str, Any], name: str, form: str = ".3f") -> str:
    """An interval."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "-" if low is None else f"{low:{form}} to {high:{form}}"
