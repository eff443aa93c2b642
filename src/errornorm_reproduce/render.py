"""Tables in Markdown: the paper's numbers beside ours, and whether they point the same way."""

from __future__ import annotations

from collections.abc import Sequence

from errornorm.tables import table

from .plan import LOWER, Found, Item
from .statistics import BASELINE, Entries, Entry, Numbers, entries

FORMATS = {"perplexity": ".2f", "nll": ".4f", "copies": ".0%", "copies_greedy": ".0%"}
SURE = 0.05


def section(item: Item, found: Found, failed: Sequence[str] = ()) -> str:
    """An item as a part of a page."""
    parts = [f"## {item.title}", f"`{item.name}`: {item.where}."]
    if found:
        parts.append(conditions(found))
        for title, measure in item.measures.items():
            if body := _numbers(item, entries(item, found, measure), measure):
                parts.append(f"{title}:\n\n{body}")
        if item.paper:
            parts.append(directions(item, entries(item, found, item.measure)))
    else:
        parts.append("Not run yet.")
    if item.text is not None and found:
        parts.append(item.text(found))
    if claims := claimed(item, found):
        parts.append("What the paper says:\n\n" + "\n".join(claims))
    parts += [f"Failed: {name}." for name in failed]
    return "\n\n".join(part for part in parts if part) + "\n"


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
    return (
        f"Scale {listed('scale')}; seeds {', '.join(map(str, seeds))}; {len(rows)} cells, {listed('date')}, errornorm "
        f"{listed('errornorm')}, {processors}{middle}" + (f"; BLEU `{signature}`." if signature else ".")
    )


def _numbers(item: Item, found: Entries, measure: str) -> str:
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
    return f"{entry.mean:{form}}{sd}" + (" *" if entry.p is not None and entry.p < SURE else "")


def directions(item: Item, ours: Entries) -> str:
    """Differences to likelihood: the paper's and ours."""
    base, lines = item.paper.get(BASELINE, {}), []
    form = FORMATS.get(item.measure, ".1f")
    for name, columns in item.paper.items():
        for column, number in columns.items():
            entry = ours.get(name, {}).get(column)
            if name == BASELINE or column not in base or entry is None or entry.difference is None:
                continue
            theirs = number - base[column]
            p = "-" if entry.p is None else f"{entry.p:.3f}"
            lines.append((name, column, f"{base[column]:g} → {number:g}", f"{theirs:+{form}}",
                          f"{entry.mean - entry.difference:{form}} → {entry.mean:{form}}",
                          f"{entry.difference:+{form}}", p, _agreement(theirs, entry)))  # fmt: skip
    header = ("method", "column", "paper: MLE → method", "paper", "ours: MLE → method", "ours", "p", "direction")
    return f"Differences to MLE (p: paired bootstrap over test sentences):\n\n{table(header, lines)}" if lines else ""


def _agreement(theirs: float, entry: Entry) -> str:
    assert entry.difference is not None
    if entry.p is not None and entry.p >= SURE:
        return "ours is within chance"
    if abs(theirs) < 1e-9:
        return "paper: none"
    return "same" if theirs * entry.difference > 0 else "opposite"


def claimed(item: Item, found: Found) -> list[str]:
    """Each claim, and whether the rows bear it out."""
    if not item.claims:
        return []
    ours = Numbers(item, found, item.measure)
    table, form = ours.entries(), FORMATS.get(item.measure, ".1f")
    out = []
    for claim in item.claims:
        a, b = (table.get(name, {}).get(claim.column) for name in (claim.better, claim.than))
        difference, p = ours.against(claim.better, claim.than, claim.column)
        if a is None or b is None or difference is None:
            verdict = "not measured"
        else:
            gain = difference * (-1 if item.measure in LOWER else 1)
            chance = difference == 0 or (p is not None and p >= SURE)
            held = "within chance" if chance else "held" if gain > 0 else "did not hold"
            seeds = f"{len(a.values)} seed{'s' if len(a.values) > 1 else ''}"
            numbers = f"{claim.better} {a.mean:{form}}, {claim.than} {b.mean:{form}}"
            verdict = f"**{held}** ({claim.column}: {numbers}, {seeds}{'' if p is None else f', p = {p:.3f}'})"
        out.append(f"- “{claim.text}”: {verdict}")
    return out
