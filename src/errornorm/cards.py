"""Method cards: what the docstrings and signatures say, as one line, as a card, as a page.

`python -m errornorm.cards` in the project's folder brings docs/methods.md and the generated parts of other pages up to
date. Nothing here knows a method by name.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .near import near
from .reliability import reliability_section
from .scale import corpus_section, growth_section, projection_section, ranks_section
from .surface import METHODS
from .tables import (
    bench_section,
    demo_section,
    detection_section,
    multi30k_section,
    natural_noise_section,
    overhead_section,
    score_cost_section,
    splits_section,
    step_section,
    table,
)

HEADINGS = ("Args:", "Example:", "Reference:")
INTRO = """# Methods

Every method is an objective: it turns the statistics of a token into that token's loss. All of them run on every
kernel, take a start step, and can be written as text: `errornorm.objective("ent_fraction(0.1, start=500)")`.

Before its start a method is likelihood. `start="auto"` begins when the model is warm: when the tenth of the tokens with
the largest error norms has a mean norm of 1.1, over the last steps. Before, a norm says how common a token is; from
about then on, that the model expected another one. A model that was trained before can be warm after a step; a
small language model may never be, and stays likelihood.

Which one? Without knowing the noise: `ent_auto()`. It leaves the likelihood of clean text as it is, and thresholds of
1.3 and more nearly so; a fraction serves generation only.

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
        raise ValueError(f"unknown method {name!r}{near(name, METHODS)}; there are {', '.join(METHODS)}")
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


RESULTS: dict[str, tuple[str, Callable[[Any], str]]] = {  # marker -> where the numbers are, and how they are shown
    "bench": ("bench/bench.json", bench_section),
    "splits": ("trainers/splits.json", splits_section),
    "step": ("trainers/step.json", step_section),
    "demo": ("results/demo.json", demo_section),
    "multi30k": ("results/multi30k.json", multi30k_section),
    "natural noise": ("results/natural_noise.json", natural_noise_section),
    "overhead": ("results/train_overhead.json", overhead_section),
    "score cost": ("results/score_throughput.json", score_cost_section),
}

FOLDERS: dict[str, tuple[str, Callable[[Any], str]]] = {  # marker -> folder of results, each in a file of its own
    "detection": ("detection", detection_section),
    "reliability": ("reliability", reliability_section),
    "scale growth": ("scale", growth_section),
    "scale ranks": ("scale", ranks_section),
    "scale corpus": ("scale", corpus_section),
    "scale projection": ("scale", projection_section),
}


def refresh(root: Path) -> dict[Path, str]:
    """What the generated files under a project's folder should hold."""
    from .scoring import table as scores
    from .training import configfile

    sections = {path.name: example_section(path) for path in sorted((root / "examples").glob("*.py"))}
    sections["methods"] = methods_table("docs/methods.md#{name}")
    sections["score table"] = inspect.cleandoc(scores.__doc__ or "")
    for marker, (name, section) in RESULTS.items():
        report = root / "docs" / name
        if report.exists():
            sections[marker] = section(json.loads(report.read_text(encoding="utf-8")))
    for marker, (folder, many) in FOLDERS.items():
        files = sorted((root / "docs" / "results" / folder).glob("*.json"))
        sections[marker] = many([json.loads(path.read_text(encoding="utf-8")) for path in files])
    found = {root / "docs" / "methods.md": page(), root / "docs" / "config.md": configfile.reference()}
    for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        if path not in found:
            text = path.read_text(encoding="utf-8")
            for marker, content in sections.items():
                if f"<!-- {marker} -->" in text:
                    text = fill(text, marker, content)
            found[path] = text
    return found


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
