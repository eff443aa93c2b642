"""The demo's result as one HTML file that needs nothing else: no network, no fonts, no scripts of others."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..data.visible import plain
from .charts import HEIGHT, WIDTH, Chart, Series, chart
from .headline import SPACE, aside, collapsed, headline
from .parts import LARGEST_NORM, Curve, Page, Row, Sample, check

NO_JINJA = "the page needs jinja2: pip install errornorm[train]"
# With these the page stays below 2 MB whatever the texts are.
MAX_SAMPLES, MAX_SENTENCES, MAX_TOKENS = 12, 10, 60
LONG, SHORT = 400, 60  # characters of a sentence; of a name, a token
SHADES = 8  # classes s0 to s7 in page.css
VERDICTS = {"correct": "right", "copy": "copy", "wrong": "wrong", "other": "not a copy"}
NOISES = {"clean": "clean example", "untranslated": "untranslated copy"}
EMPTY_TOKEN = "␣"


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of the results, as shown."""

    text: str
    best: bool
    width: float  # of the bar, in percent


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the results for each search, beam first."""

    name: str
    unit: str
    style: str
    beam: list[Cell]
    greedy: list[Cell]


def render(page: Page) -> str:
    """The whole page. The same input gives the same text."""
    check(page)
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError(NO_JINJA) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"long": _cut(LONG), "short": _cut(SHORT), "middle": _middle, "duration": _duration}
    script = _resource("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Both are files of this package, not data.
    trusted = {"script": Markup(script), "style": Markup(_resource("page.css"))}
    return environment.from_string(_resource("page.html.j2")).render(trusted, script_hash=digest, **_view(page))


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _view(page: Page) -> dict[str, Any]:
    shown = page.samples[:MAX_SAMPLES]
    return {
        "page": page,
        "headline": headline(page.rows),
        "aside": aside(page.rows),
        "collapsed": collapsed(page.rows),
        "example": _example(page),
        "styles": {row.method: style for row, style in zip(page.rows, _styles(page.rows), strict=True)},
        "measures": _measures(page),
        "charts": _charts(page),
        "plot": {"height": HEIGHT, "width": WIDTH},
        "samples": shown,
        "counts": {verdict: sum(verdict in s.verdicts.values() for s in shown) for verdict in ("copy", "wrong")},
        "verdicts": VERDICTS,
        "noises": NOISES,
        "sentences": page.sentences[:MAX_SENTENCES],
        "max_tokens": MAX_TOKENS,
        "shades": [f"{LARGEST_NORM * k / SHADES:.2f}" for k in range(SHADES + 1)],
        "shade": _shade,
        "empty_token": EMPTY_TOKEN,
    }


def _styles(rows: Sequence[Row]) -> list[str]:
    """Likelihood and error norm truncation look the same on every page; the others take turns."""
    own = {"mle": "mle", "ent_fraction": "ent", "ent_threshold": "ent"}
    return [own.get(row.spec.partition("(")[0], f"m{index % 4}") for index, row in enumerate(rows)]


def _measures(page: Page) -> list[Measure]:
    columns = [("Right translations", "%", "good", "correct", 100, max)] if page.judged else []
    columns += [("Copies of the source", "%", "bad", "copies", 100, min), ("BLEU", "", "good", "bleu", 1, max)]
    return [
        Measure(name, unit, style, *(_cells([getattr(row, f"{key}_{search}") * scale for row in page.rows], best)
                                     for search in ("beam", "greedy")))
        for name, unit, style, key, scale, best in columns
    ]  # fmt: skip


def _cells(values: list[float], best: Callable[[list[float]], float]) -> list[Cell]:
    """Best is what looks best; where all look the same, none is."""
    texts = [f"{value:.1f}" for value in values]
    top = f"{best(values):.1f}" if len(set(texts)) > 1 else None
    return [Cell(text, text == top, round(min(value, 100), 1)) for text, value in zip(texts, values, strict=True)]


def _charts(page: Page) -> list[Chart]:
    styles = {row.method: style for row, style in zip(page.rows, _styles(page.rows), strict=True)}

    def of(title: str, pick: Callable[[Curve], list[float]], form: str) -> Chart:
        series = [Series(c.method, styles[c.method], c.steps, pick(c)) for c in page.curves]
        return chart(title, series, lambda value: format(value, form).replace("%", f"{SPACE}%"))

    drawn = [
        of("Loss per token", lambda curve: curve.nll, ".2f"),
        of("Share of the tokens kept", lambda curve: curve.kept, ".1%"),
        of("Error norm, mean of the top tenth", lambda curve: curve.top_norm, ".2f"),
    ]
    return [one for one in drawn if one.lines]


def _example(page: Page) -> tuple[Sample, str, str] | None:
    """A sentence that likelihood copies and error norm truncation translates."""
    by_style = dict(zip(reversed(_styles(page.rows)), reversed([row.method for row in page.rows]), strict=True))
    first, second = by_style.get("mle", ""), by_style.get("ent", "")
    good = "correct" if page.judged else "other"
    found = [s for s in page.samples if (s.verdicts.get(first), s.verdicts.get(second)) == ("copy", good)]
    return (min(found, key=lambda s: len(s.source)), first, second) if found else None


def _shade(norm: float) -> int:
    return max(0, min(SHADES - 1, int(SHADES * norm / LARGEST_NORM)))


def _cut(length: int) -> Callable[[str], str]:
    def cut(text: str) -> str:
        """Printable and not too long."""
        text = plain(text)
        return text if len(text) <= length else text[: length - 1] + "…"

    return cut


def _middle(text: str, length: int) -> str:
    """Without what is in the middle: names often differ at their end."""
    head = length // 3
    return text if len(text) <= length else f"{text[:head].strip()}…{text[head + 1 - length :].strip()}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}{SPACE}min {rest}{SPACE}s" if minutes else f"{rest}{SPACE}s"
