"""The generated parts of docs/scale.md, from the rows of scripts/scale.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..tables import table
from .fit import Fit, Rate, fit, line
from .projection import Run, state_bytes
from .traffic import SCOPES, Sends

Row = Mapping[str, Any]
Files = Sequence[Mapping[str, Any]]
AXES = {"tokens": "tokens", "vocab": "vocabulary", "hidden": "width"}  # column of a row: its name on the page
FILES = {"tokens": "tokens", "vocab": "vocab", "width": "hidden"}  # file: the column that varies in it
ENTRIES = ("plain", "mle", "ent_fraction", "ent_auto")
VERBS = ("score", "prune", "detect", "report")
TEXT = 500  # tokens of a text of a web corpus, for counting texts


def rows_of(files: Files, axis: str) -> list[Row]:
    return [row for file in files if file["axis"] == axis for row in file["rows"]]


def curve(rows: Iterable[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    points = sorted((row[x], row[y]) for row in rows)
    return [a for a, _ in points], [b for _, b in points]


def growth(rows: Iterable[Row], x: str, y: str) -> Fit:
    return fit(*curve(rows, x, y))


def growth_section(files: Files) -> str:
    """Slopes of time and memory, and the ratios to plain at the ends."""
    parts = []
    for what, y in (("time", "best"), ("peak memory", "peak_bytes")):
        lines = []
        for axis, column in FILES.items():
            rows = rows_of(files, axis)
            if not rows:
                continue
            by_entry = {name: [row for row in rows if row["entry"] == name] for name in ENTRIES}
            ends = min(row[column] for row in rows), max(row[column] for row in rows)
            lines.append(
                (
                    f"{AXES[column]}, {ends[0]:,} to {ends[1]:,} ({_fixed(rows[0], column)})",
                    *(str(growth(some, column, y)) for some in by_entry.values()),
                    f"{growth(_last(by_entry['ent_fraction'], column), column, y).slope:.2f}",
                    *(_ratio(by_entry, name, column, ends[1], y) for name in ENTRIES[1:]),
                )
            )
        header = (
            f"{what} by",
            *ENTRIES,
            "ent_fraction, last two points",
            *(f"{name} to plain, largest" for name in ENTRIES[1:]),
        )
        if lines:
            parts.append(table(header, lines))
    return "\n\n".join([*parts, _measured(row for axis in FILES for row in rows_of(files, axis))])


def _last(rows: Iterable[Row], column: str) -> list[Row]:
    """The two largest: fixed costs are least there, and a square would show."""
    return sorted(rows, key=lambda row: float(row[column]))[-2:]


def _fixed(row: Row, column: str) -> str:
    return ", ".join(f"{name} {row[other]:,}" for other, name in AXES.items() if other != column)


def _ratio(by_entry: Mapping[str, Sequence[Row]], name: str, column: str, end: float, y: str) -> str:
    mine, plain = (next(row for row in by_entry[n] if row[column] == end) for n in (name, "plain"))
    return f"{mine['to_plain'] if y == 'best' else mine[y] / plain[y]:.2f}"


def _measured(rows: Iterable[Row]) -> str:
    """Where and when, of rows that may be of several days."""
    all_rows = list(rows)
    if not all_rows:
        return ""
    keys = ("cpu", "torch", "errornorm", "date")
    seen = {key: sorted({str(row["settings"][key]) for row in all_rows}) for key in keys}
    rounds = sorted({row["settings"].get("rounds", 1) for row in all_rows})
    how = f"; best of {', '.join(map(str, rounds))} rounds" if rounds != [1] else "; once"
    return (
        f"Processor time of one thread of {', '.join(seen['cpu'])}{how}; torch {', '.join(seen['torch'])}, errornorm "
        f"{', '.join(seen['errornorm'])}, {' and '.join(seen['date'])}."
    )


def ranks_section(files: Files) -> str:
    """Bytes that were handed over, beside the formulas."""
    rows = [row for row in rows_of(files, "ranks") if row["ranks"] > 1]
    if not rows:
        return ""
    points = sorted({(row["ranks"], row["tokens"]) for row in rows})
    lines = []
    for name, scope in SCOPES.items():
        mine = {(row["ranks"], row["tokens"]): row for row in rows if row["scope"] == name}
        if mine:
            lines.append((scope.about, *(_against(mine[point]) for point in points)))
    header = ("per step and rank", *(f"{ranks} ranks, {tokens:,} tokens" for ranks, tokens in points))
    first = rows[0]
    return "\n\n".join(
        [
            f"Bytes handed to `all_reduce` + `all_gather` by each rank in an optimizer step of one micro-batch (width "
            f"{first['width']}, vocabulary {first['vocab']:,}, sequences of {first['tokens'] // first['sequences']} "
            "tokens; with a sharded vocabulary all ranks have the same tokens). = : exactly the formula.",
            table(header, lines),
            _rank_times(rows_of(files, "ranks")),
            _measured(rows),
        ]
    )


def _against(row: Row) -> str:
    sums = {(a, b) for a, b in zip(row["all_reduce"], row["all_gather"], strict=True)}
    want = (row["formula"]["all_reduce"], row["formula"]["all_gather"])
    (reduced, gathered), *others = sorted(sums)
    shown = f"{reduced:,} + {gathered:,}"
    if not others and (reduced, gathered) == want:
        return f"{shown} ="
    return f"{shown} (formula {want[0]:,} + {want[1]:,})"


def _rank_times(rows: Sequence[Row]) -> str:
    """Of each scope, with the most tokens."""
    most, worlds = max(row["tokens"] for row in rows), sorted({row["ranks"] for row in rows})
    took = {(row["scope"], row["ranks"]): max(row["seconds"]) for row in rows if row["tokens"] == most}
    lines = [
        (scope.about, *(f"{1e3 * took[name, world]:.0f} ms" if (name, world) in took else "" for world in worlds))
        for name, scope in SCOPES.items()
    ]
    header = (f"processor time of the slowest rank, {most:,} tokens", *(f"of {world}" for world in worlds))
    return table(header, lines)


def corpus_section(files: Files) -> str:
    rows = rows_of(files, "corpus")
    if not rows:
        return ""
    ends = min(row["texts"] for row in rows), max(row["texts"] for row in rows)
    lines = []
    for verb in VERBS:
        mine = sorted((row for row in rows if row["verb"] == verb), key=lambda row: int(row["texts"]))
        last = mine[-1]
        lines.append(
            (
                f"`{verb}`" + (f", to {last['texts']:,}" if last["texts"] < ends[1] else ""),
                str(growth(mine, "texts", "seconds")),
                f"{growth(mine[-2:], 'texts', 'seconds').slope:.2f}",
                f"{last['texts'] / last['seconds']:,.0f}",
                str(growth(mine, "texts", "peak_bytes")),
                size(last["peak_bytes"]),
                _more(per_text(mine)),
            )
        )
    header = (
        "verb",
        "time: slope",
        "last two points",
        "texts per second",
        "memory: slope",
        "peak at the end",
        "more for each text",
    )
    lengths = [row["tokens"] / row["texts"] for row in rows]
    return "\n\n".join(
        [
            f"{ends[0]:,} to {ends[1]:,} texts of {min(lengths):.0f} to {max(lengths):.0f} tokens, by a model "
            "that costs next to nothing: what is left is reading, encoding, words, and Parquet. Memory is the peak "
            "beyond what the process had before; *more for each text* is the slope of a straight line.",
            table(header, lines),
            _measured(rows),
        ]
    )


def per_text(rows: Iterable[Row]) -> Rate:
    """Bytes of memory for one more text, by a straight line."""
    return line(*curve(rows, "texts", "peak_bytes"))[0]


def _more(rate: Rate, times: float = 1.0) -> str:
    return f"{size(rate.slope * times)} ± {size(rate.error * times)}" if rate.seen else "none to be seen"


def projection_section(files: Files) -> str:
    """1 T tokens on 1,000 GPUs."""
    run = Run()
    parts = [_the_run(run), _what_crosses(run), _what_is_held(run, files), _scoring(run, files)]
    return "\n\n".join(part for part in parts if part)


def _the_run(run: Run) -> str:
    hours = run.steps * run.step_seconds / 3600
    rows = [
        ("tokens, GPUs, tokens of a step", f"{trillions(run)}, {run.ranks:,}, {run.tokens_per_step:,}"),
        ("steps", f"{run.steps:,}"),
        ("operations of a token, forward and backward", f"{3 * run.forward / 1e9:.1f} G"),
        ("of these, the head", f"{run.head / run.forward:.1%}"),
        ("computation of a step, and of the run", f"{run.step_seconds:.2f} s, {hours:,.0f} hours"),
        ("gradients, over the link of a rank in a step", size(run.gradients.over_the_link(run.ranks))),
        ("their time, in part beside backward", f"{run.seconds(run.gradients, 1):.2f} s"),
    ]
    return f"### The run\n\n{table(('arithmetic', ''), rows)}"


def _what_crosses(run: Run) -> str:
    whole = run.gradients.over_the_link(run.ranks)
    lines = []
    for name, scope in SCOPES.items():
        if scope.sharded or "sequences" in name:
            continue
        sends, rounds = scope.formula(run.load), scope.rounds or 0
        linked, took = sends.over_the_link(run.ranks), run.seconds(sends, rounds)
        lines.append(
            (
                scope.about,
                size(linked),
                f"{linked / whole:.0e}" if linked else "0",
                f"{1e3 * took:.2f} ms" if took else "0",
                f"{took / run.step_seconds:.2%}" if took else "0",
                size(linked * run.steps),
                size(state_bytes(scope)),
            )
        )
    gathered = Sends(0, run.gathered() // run.ranks)
    lines.append(
        (
            "*a gather of all scores, which nothing here does*",
            size(gathered.over_the_link(run.ranks)),
            f"{gathered.over_the_link(run.ranks) / whole:.0e}",
            f"{1e3 * run.seconds(gathered, 1):.2f} ms",
            f"{run.seconds(gathered, 1) / run.step_seconds:.2%}",
            size(gathered.over_the_link(run.ranks) * run.steps),
            "",
        )
    )
    header = (
        "scope", "over the link in a step", "to the gradients", "time", "of a step", "in the run", "in a checkpoint"
    )  # fmt: skip
    shard = SCOPES["shards"].formula(run.load)
    inside = shard.over_the_link(run.node) / run.inside
    return "\n\n".join(
        [
            f"### What crosses the ranks, {run.ranks:,} of them",
            table(header, lines),
            f"The vocabulary split over the {run.node} GPUs of a machine: {size(shard.over_the_link(run.node))} over "
            f"each GPU's link for {run.sequence:,} tokens, nearly all of it the hidden states' gradient in float32; "
            f"{1e3 * inside:.2f} ms at {run.inside / 1e9:.0f} GB/s, {inside / run.step_seconds:.2%} of a step.",
        ]
    )


def _what_is_held(run: Run, files: Files) -> str:
    plain = [row for row in rows_of(files, "tokens") if row["entry"] == "plain"]
    seen = ""
    if plain:
        last = max(plain, key=lambda row: int(row["tokens"]))
        copies = (last["peak_bytes"] - 4 * last["hidden"] * (last["tokens"] + last["vocab"])) / (
            4 * last["tokens"] * last["vocab"]
        )
        seen = f" (measured above: {copies:.1f} times)"
    rows = [
        ("the logits of a rank's step in float32, once", size(run.logits)),
        (f"plain cross-entropy: the logits and their gradient{seen}", size(2 * run.logits)),
        ("`chunked`: its one buffer of logits", size(run.buffer)),
        ("beside it, if the weight is in half precision: a float32 copy of it", size(run.weight)),
        ("and its gradient under construction, in float32 too", size(run.weight)),
    ]
    return f"### What a rank holds for head and loss\n\n{table(('arithmetic', ''), rows)}"


def _scoring(run: Run, files: Files) -> str:
    rows = rows_of(files, "corpus")
    if not rows:
        return ""
    last: Callable[[str], Row] = lambda verb: max(  # noqa: E731
        (row for row in rows if row["verb"] == verb), key=lambda row: int(row["texts"])
    )
    scored = last("score")
    rate = scored["tokens"] / scored["seconds"]
    per_token = scored["table_bytes"] / scored["tokens"]
    gpu = run.peak * run.use / run.forward
    texts = run.tokens / TEXT
    lines = [
        (
            "the table on disk",
            f"{size(per_token * run.tokens)}, {per_token:.0f} bytes for a token, zstd",
            "measured for a token, and multiplied",
        ),
        (
            "the model, forward alone",
            f"{run.tokens / gpu / run.ranks / 3600:.0f} hours on {run.ranks:,} GPUs, {gpu:,.0f} tokens per second each",
            "arithmetic",
        ),
        (
            "all around the model: encoding, words, Parquet",
            f"{run.tokens / rate / 3600:,.0f} hours of a core, {rate:,.0f} tokens per second each",
            "measured, and multiplied",
        ),
        ("cores for each GPU, so that it does not wait", f"{gpu / rate:.1f}", "from the two"),
        *(
            (
                f"memory of `{verb}`, {texts:,.0f} texts of {TEXT} tokens in one table",
                ("at least " if verb == "detect" else "")  # it holds tokens, of which the measured texts had few
                + _more(per_text(row for row in rows if row["verb"] == verb), texts),
                "measured for a text, and multiplied",
            )
            for verb in ("prune", "detect", "report")
        ),
    ]
    return f"### Scoring {trillions(run)} tokens\n\n{table(('what', 'how much', 'how known'), lines)}"


def trillions(run: Run) -> str:
    return f"{run.tokens / 1e12:g} T"


def size(number: float) -> str:
    """Bytes, for people.

    Example:
        >>> size(65536), size(0), size(3.2e10)
        ('66 kB', '0', '32 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if number < 999.5:
            digits = 0 if number >= 10 or unit == "bytes" else 1
            return "0" if number == 0 else f"{number:.{digits}f} {unit}"
        number /= 1000
    return f"{number:.0f} EB"
