"""Method cards: what the docstrings and signatures say, as one line, as a card, as a page.

`python -m errornorm.cards` in the project's folder brings docs/methods.md and the generated parts of other pages up to
date. Nothing here knows a method by name.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .surface import METHODS

HEADINGS = ("Args:", "Example:", "Reference:")
INTRO = """# Methods

Every method is an objective: it turns the statistics of a token into that token's loss. All of them run on every
kernel, take a start step, and can be written as text: `errornorm.objective("ent_fraction(0.1, start=500)")`.

This page is made from the docstrings by `errornorm methods --markdown`; change them, not this file.
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    default: str
    about: str


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    signature: str
    summary: str  # the first sentence
    about: str  # the paragraphs after the equation, and what follows the first sentence
    equation: str
    parameters: tuple[Parameter, ...]
    statistics: tuple[str, ...]  # needed beyond nll and lse
    columns: tuple[str, ...]  # needed from outside the model
    example: str
    reference: str

    def markdown(self, level: int = 1) -> str:
        rows = [(f"`{p.name}`", f"`{p.default}`", p.about) for p in self.parameters]
        needs = [f"Statistics beyond `nll` and `lse`: {_listed(self.statistics)}."]
        if self.columns:
            needs.append(f"Columns that come with each training batch: {_listed(self.columns)}.")
        parts = [
            f"{'#' * level} {self.name}",
            self.summary,
            _fenced("text", self.equation),
            self.about,
            _fenced("text", self.signature),
            table(("parameter", "default", "meaning"), rows),
            " ".join(needs),
            _fenced("pycon", self.example),
            f"Reference: {self.reference}",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def card(name: str) -> Card:
    """The card of a method.

    Example:
        >>> card("mle").summary
        'Maximum likelihood: every token counts the same.'
    """
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"unknown method {name!r}{hint}; there are {', '.join(METHODS)}")
    factory = METHODS[name]
    sections = _sections(inspect.getdoc(factory) or "")
    defaults = {p.name: repr(p.default) for p in inspect.signature(factory).parameters.values()}
    summary, about, equation = _opening(sections[""])
    about_parameters = _parameters(sections["Args:"])
    assert about_parameters.keys() == defaults.keys(), f"{name}: Args do not match the signature"
    objective = factory()
    return Card(
        name=name,
        signature=f"{name}({', '.join(f'{key}={default}' for key, default in defaults.items())})",
        summary=summary,
        about=about,
        equation=equation,
        parameters=tuple(Parameter(key, default, about_parameters[key]) for key, default in defaults.items()),
        statistics=tuple(sorted(objective.needs)),
        columns=tuple(sorted(objective.columns)),
        example=inspect.cleandoc(sections["Example:"]),
        reference=" ".join(sections["Reference:"].split()),
    )


def cards() -> list[Card]:
    """The cards of all methods, in the order of METHODS."""
    return [card(name) for name in METHODS]


def page() -> str:
    """docs/methods.md."""
    return "\n".join([INTRO, methods_table("#{name}"), *(c.markdown(2) for c in cards())])


def methods_table(link: str) -> str:
    """One line for each method; `link` is where its name leads."""
    rows = [(f"[`{c.name}`]({link.format(name=c.name)})", c.summary) for c in cards()]
    return table(("method", "what it does"), rows) + "\n"


def bench_section(report: Mapping[str, Any]) -> str:
    """The README's benchmark tables, one per size, from the JSON that `errornorm bench` writes."""
    sizes: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["rows"]:
        sizes.setdefault(_conditions(row["settings"]), []).append(row)
    return "\n".join(f"{conditions}\n\n{_bench_table(rows)}\n" for conditions, rows in sizes.items())


def _conditions(settings: Mapping[str, Any]) -> str:
    threads = "1 thread" if settings["threads"] == 1 else f"{settings['threads']} threads"
    return (
        f"{settings['tokens']} tokens, hidden size {settings['hidden']}, vocabulary {settings['vocab']}, fraction "
        f"{settings['fraction']:g}; {threads} of {settings['cpu']}, {settings['clock']} time, best of "
        f"{settings['repeat']}, torch {settings['torch']}:"
    )


def _bench_table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = {
        "ms": ("best_ms", ".0f"),
        "to plain": ("to_plain", ".2f"),
        "to floor": ("to_floor", ".2f"),
        "MB": ("peak_mb", ".0f"),
        "MB to plain": ("memory_to_plain", ".2f"),
        "gradient error": ("gradient_error", ".0e"),
    }
    ran = [row for row in rows if row["ran"]]
    lines = [
        (_bench_label(row), *("" if row[key] is None else f"{row[key]:{form}}" for key, form in columns.values()))
        for row in ran
    ]
    missing = ", ".join(f"{row['label']} ({row['note']})" for row in rows if not row["ran"])
    return table(("one step of head and loss", *columns), lines) + (f"\n\nDid not run: {missing}." if missing else "")


def _bench_label(row: Mapping[str, Any]) -> str:
    label = f"**{row['label']}**" if row["kind"] == "ours" else row["label"]
    return f"{label} ({row['note']})" if row["note"] else str(label)


def splits_section(report: Mapping[str, Any]) -> str:
    """How far losses are from those of one process and one micro-batch, from the JSON of scripts/splits.py."""
    rows = report["rows"]
    ways = sorted({(row["ranks"], row["micro_batches"]) for row in rows})
    cells: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = {}
    for row in rows:
        cells.setdefault((row["model"], row["method"]), {})[row["ranks"], row["micro_batches"]] = row["losses"]
    header = tuple(f"{ranks} × {parts}" for ranks, parts in ways)

    def spread(losses: dict[tuple[int, int], list[float]], way: tuple[int, int]) -> str:
        off = max(abs(a / b - 1) for a, b in zip(losses[way], losses[1, 1], strict=True))
        return f"{off:.0e}" if off < 1e-4 else f"**{off:.1%}**"

    def scale(losses: dict[tuple[int, int], list[float]], way: tuple[int, int]) -> str:
        return f"{losses[way][0] / losses[1, 1][0]:.3f}"

    ours = {key: losses for key, losses in cells.items() if key[1] != "plain Trainer"}
    kept = {(row["model"], row["method"]): row["kept"] for row in rows if row["ranks"] == row["micro_batches"] == 1}
    scaled = {key: cells[key] for key in cells if key[1] in ("plain Trainer", "mle(start=0)")}
    settings = rows[0]["settings"]
    return "\n\n".join(
        [
            "Largest relative difference of a step's loss to that of one rank and one micro-batch, "
            f"{settings['steps']} steps of {settings['batch']} sequences, ranks × micro-batches "
            f"(transformers {settings['transformers']}):",
            table(("model", "objective", "kept", *header), [
                (model, f"`{brief(method)}`", f"{kept[model, method]:.0%}", *(spread(losses, way) for way in ways))
                for (model, method), losses in ours.items()
            ]),
            "The loss of the first step relative to the same:",
            table(("model", "trained by", *header), [
                (model, "plain Trainer" if method == "plain Trainer" else "errornorm `mle()`",
                 *(scale(losses, way) for way in ways))
                for (model, method), losses in sorted(scaled.items())
            ]),
        ]
    )  # fmt: skip


def brief(spec: str) -> str:
    """A method's text without what has its default value."""
    factory = METHODS[spec.partition("(")[0]]
    defaults = {name: p.default for name, p in inspect.signature(factory).parameters.items()}
    call = ast.parse(spec, mode="eval").body
    assert isinstance(call, ast.Call)
    given = [(k.arg or "", ast.literal_eval(k.value)) for k in call.keywords]
    shown = [f"{name}={value!r}" for name, value in given if defaults[name] != value]
    return f"{factory.__name__}({', '.join(shown)})"


def step_section(report: Mapping[str, Any]) -> str:
    """Time and memory of a whole Trainer step, from the JSON of scripts/trainer_step.py."""
    first = report["rows"][0]["settings"]
    names = {"plain": "plain Trainer", "mle": "errornorm `mle()`", "ent_fraction": "errornorm `ent_fraction(0.1)`"}
    lines = [
        (
            f"{row['size']}, {row['settings']['tokens']} tokens",
            names[row["variant"]],
            f"{min(row['seconds']):.2f}",
            f"{row['to_plain']:.2f}",
            f"{row['peak_mb']:.0f}",
            f"{row['step_mb']:.0f}",
        )
        for row in report["rows"]
    ]
    header = ("model", "loss", "best s", "time to plain", "peak MB", "of these for the steps")
    about = f"Vocabulary {first['vocab']}, {first['threads']} thread, CPU time, torch {first['torch']}:"
    return f"{about}\n\n{table(header, lines)}"


def example_section(path: Path) -> str:
    return f"{_fenced('python', path.read_text(encoding='utf-8').strip())}\n\nRun it: `python examples/{path.name}`"


def fill(text: str, marker: str, content: str) -> str:
    """Put content between <!-- marker --> and <!-- /marker -->."""
    begin, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise ValueError(f"no {begin} followed by {end} in the text: add the two lines where the section belongs")
    return f"{head}{begin}\n{content.strip()}\n{end}{tail}"


def refresh(root: Path) -> dict[Path, str]:
    """What the generated files under a project's folder should hold."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    readme = fill(readme, "methods", methods_table("docs/methods.md#{name}"))
    report = root / "docs" / "bench" / "bench.json"
    if report.exists():
        readme = fill(readme, "bench", bench_section(json.loads(report.read_text(encoding="utf-8"))))
    return {root / "docs" / "methods.md": page(), root / "README.md": readme, **_trainer_pages(root)}


def _trainer_pages(root: Path) -> dict[Path, str]:
    """Examples and measurements on the pages that show them."""
    sections = {path.name: example_section(path) for path in sorted((root / "examples").glob("*.py"))}
    for name, section in (("splits", splits_section), ("step", step_section)):
        report = root / "docs" / "trainers" / f"{name}.json"
        if report.exists():
            sections[name] = section(json.loads(report.read_text(encoding="utf-8")))
    pages = {}
    for path in (root / "docs" / "trainers.md", root / "docs" / "distributed.md"):
        if path.exists():
            pages[path] = path.read_text(encoding="utf-8")
            for marker, content in sections.items():
                if f"<!-- {marker} -->" in pages[path]:
                    pages[path] = fill(pages[path], marker, content)
    return pages


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; nothing if it has no rows."""
    if not rows:
        return ""
    lines = [header, tuple("---" for _ in header), *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sections(doc: str) -> dict[str, str]:
    """The text under each heading; the opening under ""."""
    found: dict[str, list[str]] = {heading: [] for heading in ("", *HEADINGS)}
    current = ""
    for line in doc.splitlines():
        heading = next((h for h in HEADINGS if line.startswith(h)), None)
        current = heading or current
        found[current].append(line if heading is None else line.removeprefix(heading).strip())
    return {heading: "\n".join(lines).strip("\n") for heading, lines in found.items()}


def _opening(text: str) -> tuple[str, str, str]:
    """The first sentence, the other paragraphs, and the equation, which is what is indented."""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    prose = [" ".join(block.split()) for block in blocks if not block.startswith("    ")]
    equation = "\n".join(inspect.cleandoc(block) for block in blocks if block.startswith("    "))
    summary, rest = re.match(r"(.+?\.)(?:\s+(.*))?$", prose[0]).groups()  # type: ignore[union-attr]
    return summary, "\n\n".join([*([rest] if rest else []), *prose[1:]]), equation


def _parameters(text: str) -> dict[str, str]:
    """Name and description of each parameter; a continued line is indented further."""
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: " ".join(about.split()) for name, about in entries}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```" if text else ""


if __name__ == "__main__":
    for path, content in refresh(Path.cwd()).items():
        path.write_text(content, encoding="utf-8")
        print(path)
