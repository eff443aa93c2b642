"""The results as a page: docs/results.md, and the same as HTML."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from errornorm.data.files import written
from errornorm.tables import table

from . import knobs, methods, run
from .claims import verdicts
from .items import ITEMS
from .methods import Family
from .plan import Found, Item, Plan
from .scales import SCALES, Scale
from .store import Store

MOST_SEEDS = 10
UNSHOWN = ("tiny",)  # it is for tests
HEAD = """# Results

Made by `errornorm reproduce --page docs` from the rows in docs/results/reproduce; no number here is typed. A star: the
difference to MLE is more than chance (p < 0.05, two-sided paired bootstrap over test sentences, and over seeds where
there are several: one seed says nothing about others). Claims are tested for their direction, not for the paper's
amounts. ± is the standard deviation over seeds.{alone}
"""
ALONE = " The same [as a page of its own](results.html)."
MARKUP = re.compile("&lt;(/?(?:mark|b))&gt;")  # all that a text may have; it cannot do anything
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;font-size:.85rem;font-variant-numeric:tabular-nums}"
    "td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:left}th{white-space:nowrap}"
    "img{max-width:100%}code{font-size:.85em}p code{overflow-wrap:anywhere}"
    "mark{background:#fff3b0;color:#222}mark b{background:#f6b0a8}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#ddd}td,th{border-color:#333}img{background:#fff}}"
)


def write(folder: Path, results: Path) -> list[Path]:
    """Both files, of every scale that has rows but the one for tests."""
    text = markdown(results, folder)
    page, site = folder / "results.md", folder / "results.html"
    with written(page) as file:
        file.write(text)
    with written(site) as file:
        file.write(as_html(text.replace(ALONE, "", 1)))
    return [page, site]


def markdown(results: Path, folder: Path) -> str:
    with methods.released() as extra:
        return "\n".join([HEAD.format(alone=ALONE), *_scales(Store(results), folder, extra)])


def _scales(store: Store, folder: Path, extra: tuple[Family, ...]) -> Iterator[str]:
    for scale in SCALES.values():
        found = [] if scale.name in UNSHOWN else list(_found(scale, store, extra))
        if not any(cell.scale == scale.name for _, _, there in found for cell, _ in there):  # some are of any scale
            continue
        sections: list[str] = []
        claims: list[tuple[str, ...]] = []
        autos: list[knobs.Line] = []
        for item, plan, there in found:
            text, figure = run.shown(item, plan, store)
            picture = f"\n![{item.title}]({os.path.relpath(figure, folder)})\n" if figure else ""
            sections.append(f"#{text}{picture}")  # a scale has sections, and the page scales
            claims += [(item.name, v.claim.text, v.claim.better, v.text) for v in verdicts(item, there)]
            autos += knobs.lines(item, there)
        summary = table(("item", "the paper says", "better is", "here"), claims)
        yield from (f"## Scale `{scale.name}`\n\n{scale.about}\n", summary + "\n", *sections, *knobs.section(autos))


def _found(scale: Scale, store: Store, extra: tuple[Family, ...]) -> Iterator[tuple[Item, Plan, Found]]:
    """Items that have rows."""
    for item in ITEMS.values():
        plan = run.chosen(item, Plan(scale, tuple(range(MOST_SEEDS)), extra=extra), store)
        if there := run.there(item, item.cells(plan), store):
            yield item, plan, there


def as_html(text: str) -> str:
    """By markdown-it, which comes with rich."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = MARKUP.sub(r"<\1>", body)
    title = html.escape(text.partition("\n")[0].lstrip("# "))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}</body></html>\n"
    )
