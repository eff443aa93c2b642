"""The parts of docs/scale.md about what was measured, from the rows of scripts/scale.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..tables import table
from .rows import AXES, ENTRIES, FILES, VERBS, Files, Row, growth, more, per_text, rows_of, size
from .traffic import SCOPES


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
                more(per_text(mine)),
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
