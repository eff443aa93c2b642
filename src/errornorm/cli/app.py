"""The command line as a whole: verbs, exit codes, and one line for each error."""

from __future__ import annotations

import errno
import json
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

from .._version import __version__
from ..allocators import LIMITS, crowded, refused
from ..data.visible import plain
from ..training.stops import at_once
from .printing import Said, example, out, say, verbatim
from .streams import OUT, sound_streams

EXITS = {
    0: "done",
    1: "a bug: run it again as errornorm --debug ..., and report what it says",
    2: "usage: an option or argument is wrong, or an extra is not installed",
    3: "data: a file is missing, not readable, or not what it should be",
    4: "numerics: NaN or Inf where a number should be",
    5: "resources: out of memory, the disk is full, or another process has the run directory",
    6: "cells: some runs of a grid failed; their names and reasons are printed, all others are done",
    129: "stopped by SIGHUP, as when a terminal is closed",
    130: "stopped by Ctrl-C",
    143: "stopped by SIGTERM",
}

# Typer's own copy of click, or click itself, whichever this version stands on.
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\n\n".join(
        [
            example("errornorm demo", "errornorm train run.yaml", "errornorm methods ent_fraction"),
            verbatim("Exit codes:\n" + "\n".join(f"  {code:<4} {about}" for code, about in EXITS.items())),
        ]
    ),
)


@dataclass(slots=True)
class Run:
    """What holds for every verb."""

    debug: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code."""
    with sound_streams():
        return _main(sys.argv[1:] if argv is None else list(argv))


def _main(words: list[str]) -> int:
    run, said = Run(), Said(logging.WARNING)
    logging.getLogger().addHandler(said)
    try:
        with at_once("; no half-written file is left"):
            code = app(words, prog_name="errornorm", obj=run, standalone_mode=False)
        sys.stdout.flush()
        if code == 130:  # Typer's answer to Ctrl-C
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        say("stopped by Ctrl-C; no half-written file is left")
        code = 130
    except SystemExit as stop:
        if _left(stop.__context__):  # Typer's answer
            return 0
        if isinstance(stop.code, str):
            say(stop.code)
        code = 1 if isinstance(stop.code, str) else stop.code
    except Exception as error:
        if _left(error):
            return 0
        if run.debug:
            print(plain(traceback.format_exc()), file=sys.stderr)
        code, message = explain(error)
        for line in message.split("\n"):
            say(line)
    finally:
        logging.getLogger().removeHandler(said)
    return int(code or 0)


def _left(error: BaseException | None) -> bool:
    """Whether the reader of what is printed has read enough, as `head` does."""
    return isinstance(error, BrokenPipeError) and error.filename == OUT


def explain(error: Exception) -> tuple[int, str]:
    """The exit code of an error, and one line about it."""
    if isinstance(error, UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "errornorm"
        message = cast(Any, error).format_message().removeprefix("Invalid value: ").rstrip(".")
        return 2, f"{message}{' See' if message.endswith('?') else '; see'} {command} --help"
    if isinstance(code := getattr(error, "exit_code", None), int):  # stopped by a signal, with a checkpoint
        return code, str(error)
    if type(error).__name__ == "ConfigError":  # a line for each problem
        return 2, str(error)
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FloatingPointError):
        return 4, text
    if type(error).__name__ == "DataError":  # by name: the verbs import what they need
        return 3, text
    if refused(error):
        return 5, f"out of memory ({text}): try a smaller size"
    where = f"{error.strerror or text}: {error.filename or 'a file'}" if isinstance(error, OSError) else text
    if crowded(error):
        return 5, f"{where}: raise the limit (ulimit -n)"
    if isinstance(error, OSError):
        if error.errno == errno.EBUSY:
            return 5, error.strerror or text
        if error.errno in LIMITS:
            return 5, f"{where}: make room, or choose another place"
        return 3, f"{where}: check the path and your permissions"
    if isinstance(error, (json.JSONDecodeError, UnicodeError)):
        return 3, text
    if isinstance(error, (ValueError, ImportError)):
        return 2, text
    return 1, f"{type(error).__name__}: {text}: this is a bug; run it again as errornorm --debug ..."


@app.callback(invoke_without_command=True)
def errornorm(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Robust training of text-generation models on noisy data: exact, fused Error Norm Truncation for PyTorch."""
    context.obj.debug = debug
    if version:
        out(f"errornorm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        out(context.get_help())
