"""Tables in Markdown: the paper's numbers beside ours, and whether they point the same way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from errornorm.tables import table

from .choose import Tried
from .claims import Verdict, verdicts
from .plan import BASELINE, Found, Item
from .statistics import Entries, Entry, Pair, entries

LEFT_OUT = "The remarks are left out; nothing was measured for"
FORMATS = {"perplexity": ".2f", "nll": ".4f", "copies": ".0%", "copies_greedy": ".0%"}


def signed(value: float, form: str) -> str:
    """With its sign, which is + for what rounds to nothing."""
    said = f"{value:+{form}}"
    return said if float(said) else f"{0.0:+{form}}"


@dataclass(frozen=True)
class Parts:
    """What a section is made from.

    Args:
        found: The cells that have rows.
        tried: The candidates of the choice.
        failed: Names of cells that failed, with the reason.
        remarks: What people say about it; numbers stand in it as [[row, column, measure]].
    """

    found: Found
    tried: Sequence[Tried] = ()
    failed: Sequence[str] = ()
    remarks: str = ""


def section(item: Item, parts: Parts) -> str:
    """An item as a part of a page."""
    found = parts.found
    out = [f"## {item.title}", f"`{item.name}`: {item.where}."]
    if item.words:
        out.append("The paper: " + "; ".join(f"{name}: “{words}”" for name, words in item.words.items()) + ".")
    if item.ours:
        out.append(f"Here: {item.ours}.")
    if not found:
        out.append("Not run yet.")
    else:
        out += [conditions(found), filled(item, found, parts.remarks)]
        for title, measure in item.measures.items():
            if body := _numbers(entries(item, found, measure), measure):
                out.append(f"{title}:\n\n{body}")
        if item.paper:
            out.append(directions(item, entries(item, found, item.measure)))
        if item.text is not None:
            out.append(item.text(found))
        if item.claims:
            out.append("What the paper says:\n\n" + "\n".join(_claim(item, v) for v in verdicts(item, found)))
        out.append(_choice(parts.tried))
    out += [f"Failed: {name}." for name in parts.failed]
    return "\n\n".join(part for part in out if part) + "\n"


def filled(item: Item, found: Found, remarks: str) -> str:
    """Remarks with their numbers, such as [[ENT-Fraction, 50%, bleu]]: no number is typed twice. They speak of all
    rows: when only some were asked for, or one failed, there are none."""
    missing: list[str] = []

    def number(match: re.Match[str]) -> str:
        place, measure = (part.strip() for part in match[1].rsplit(",", 1))  # both parts of a place may have commas
        known = entries(item, found, measure)
        entry = next((e for name, row in known.items() for at, e in row.items() if f"{name}, {at}" == place), None)
        if entry is None:
            missing.append(match[0])
            return ""
        return f"{entry.mean:{FORMATS.get(measure, '.1f')}}"

    text = re.sub(r"\[\[(.*?)\]\]", number, remarks.strip())
    return f"{LEFT_OUT} {', '.join(missing)}." if missing else text


def _claim(item: Item, verdict: Verdict) -> str:
    form = FORMATS.get(item.measure, ".1f")
    numbers = [
        f"{one.column}: {one.pair.ours:{form}} against {one.pair.theirs:{form}} of {one.than}, "
        f"{one.pair.seeds} seed{'s' * (one.pair.seeds > 1)}" + ("" if one.pair.p is None else f", p = {one.pair.p:.3f}")
        for one in verdict.comparisons
    ]
    more = f" ({verdict.claim.better}; {'; '.join(numbers)})" if numbers else ""
    return f"- “{verdict.claim.text}”: **{verdict.text}**{more}"


def _choice(tried: Sequence[Tried]) -> str:
    lines = []
    for family in dict.fromkeys(one.family for one in tried):
        ours = [one for one in tried if one.family == family]
        form = FORMATS.get(ours[0].measure, ".1f")
        texts = [f"{'**' * one.best}{one.score:{form}}{'**' * one.best} `{one.objective}`" for one in ours]
        lines.append((family, ", ".join(texts)))
    if not lines:
        return ""
    head = f"Settings, chosen once on the development set ({tried[0].measure}; seed 0):"
    return f"{head}\n\n{table(('method', 'candidates'), lines)}"


def conditions(found: Found) -> str:
    """What all rows of a table have in common, and where they come from."""
    rows = [row for _, row in found]

    def listed(name: str) -> str:
        return ", ".join(sorted({str(row[name]) for row in rows if row.get(name) is not None}))

    seeds = sorted({cell.seed for cell, _ in found})
    processors = ", ".join(sorted({row["machine"].get("gpu") or row["machine"]["processor"] for row in rows}))
    times = sorted(row["seconds"] for row in rows if row["seconds"])
    middle = f"; {times[len(times) // 2] / 60:.1f} minutes for a cell" if times else ""
    signature = next((row["signatures"]["bleu"] for row in rows if row.get("signatures", {}).get("bleu")), None)
    cells = "1 cell" if len(rows) == 1 else f"{len(rows)} cells"
    return (
        f"Scale {listed('scale')}; seeds {', '.join(map(str, seeds))}; {cells}, {listed('date')}, errornorm "
        f"{listed('errornorm')}, {processors}{middle}" + (f"; BLEU `{signature}`." if signature else ".")
    )


def _numbers(found: Entries, measure: str) -> str:
    columns = list(dict.fromkeys(column for row in found.values() for column in row))
    objectives = {name: {entry.objective for entry in row.values()} for name, row in found.items()}
    lines = [
        (name, _code(objectives[name]), *(_shown(found[name].get(column), measure) for column in columns))
        for name in found
    ]
    return table(("method", "objective", *columns), lines)


def _code(objectives: set[str]) -> str:
    return f"`{next(iter(objectives))}`" if len(objectives) == 1 else "by column"


def _shown(entry: Entry | None, measure: str) -> str:
    if entry is None:
        return ""
    form = FORMATS.get(measure, ".1f")
    sd = "" if entry.sd is None else f" ± {entry.sd:{form}}"
    return f"{entry.mean:{form}}{sd}" + (" *" if entry.pair is not None and entry.pair.sure else "")


def directions(item: Item, ours: Entries) -> str:
    """Differences to likelihood: the paper's and ours."""
    base, lines = item.paper.get(BASELINE, {}), []
    form = FORMATS.get(item.measure, ".1f")
    for name, columns in item.paper.items():
        for column, number in columns.items():
            pair = entry.pair if (entry := ours.get(name, {}).get(column)) else None
            if name == BASELINE or column not in base or pair is None:
                continue
            theirs = number - base[column]
            p = "-" if pair.p is None else f"{pair.p:.3f}"
            ours_too = (
                f"{pair.theirs:{form}} → {pair.ours:{form}}",
                signed(pair.difference, form),
                str(pair.seeds),
                p,
            )
            lines.append((name, column, f"{base[column]:g} → {number:g}", signed(theirs, form), *ours_too,
                          _agreement(theirs, pair)))  # fmt: skip
    header = ("method", "column", "paper: MLE → method", "paper", "ours: MLE → method", "ours", "seeds", "p")
    head = "Differences to MLE (p: paired bootstrap over test sentences and seeds):"
    return f"{head}\n\n{table((*header, 'direction'), lines)}" if lines else ""


def _agreement(theirs: float, pair: Pair) -> str:
    if pair.p is not None and not pair.sure:
        return "ours is within chance"
    if abs(theirs) < 1e-9:
        return "paper: none"
    return "same" if theirs * pair.difference > 0 else "opposite"
