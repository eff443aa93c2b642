"""Verbs about what is built in: methods, kernels, bench."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .app import app
from .printing import MOST, AsJson, example, out, print_json, print_markdown, print_table, progress


@app.command(epilog=example("errornorm methods", "errornorm methods ent_fraction", "errornorm methods tailr --json"))
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
    from .. import cards

    found = cards.cards() if name is None else [cards.card(name)]
    if as_json:
        print_json([asdict(card) for card in found] if name is None else asdict(found[0]))
    elif name is not None:
        print_markdown(found[0].markdown(), raw=markdown)
    elif markdown:
        out(cards.page(), end="")
    else:
        print_table(("method", "what it does"), [(card.name, card.summary) for card in found])


@app.command(epilog=example("errornorm kernels", "errornorm kernels --json"))
def kernels(as_json: AsJson = False) -> None:
    """List the kernels.

    A kernel is one way of computing statistics and their gradient. Every method runs on every kernel.
    """
    from ..surface import KERNELS

    if as_json:
        print_json([asdict(kernel) for kernel in KERNELS.values()])
    else:
        rows = [(kernel.name, " or ".join(kernel.takes), kernel.about) for kernel in KERNELS.values()]
        print_table(("kernel", "takes", "what it is"), rows)


def _size(text: str) -> tuple[int, int, int]:
    try:
        tokens, hidden, vocab = (int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not tokens,hidden size,vocabulary, such as 2048,512,32000") from None
    return tokens, hidden, vocab


@app.command(epilog=example("errornorm bench", "errornorm bench --size 512,256,8000 --size 2048,512,32000 --repeat 10"))
def bench(
    size: Annotated[
        list[Any],
        typer.Option(parser=_size, metavar="N,D,V", help="Tokens, hidden size and vocabulary; may be repeated."),
    ] = ["2048,512,32000"],  # noqa: B006
    repeat: Annotated[int, typer.Option(max=MOST, help="Rounds; in each, everyone takes one step.")] = 5,
    threads: Annotated[
        int, typer.Option(max=MOST, help="For torch. With 1, CPU time is measured; with more, wall time.")
    ] = 1,
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
    from .. import bench as library

    with progress() as tell:
        result = library.run(size, fraction, repeat, threads, output=output, progress=tell)
    if as_json:
        out(result.to_json(), end="")
    else:
        out(f"{library.table(result)}\n\n{output / 'bench.json'}\n{output / 'bench.png'}")
