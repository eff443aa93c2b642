"""The documentation as a site: everything is in it, every link leads somewhere, and it reads as the files do."""

import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.reporting.chromium import FOUND, MISSING, Tab, browser

ROOT = Path(__file__).parents[1]
BESIDE = {"README.md": "overview", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing",
          "SECURITY.md": "security"}  # fmt: skip
DOCS = ROOT / "docs"
# Remarks are parts of results.md.
INSIDE = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if not path.name.startswith("remarks-")]
PAGES = {ROOT / path: name for path, name in BESIDE.items()} | {
    DOCS / path: path.with_suffix("").as_posix() for path in INSIDE
}
SHOWN = {"h1", "h2", "h3", "h4", "p", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "img", "blockquote"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True)
    return folder, done


@pytest.fixture(scope="module")
def site(built):
    return built[0]


class Html(HTMLParser):
    """Of a page: anchors, links, what it loads, and the text of its article with the tags that shape it."""

    def __init__(self, text, *, article):
        super().__init__()
        self.anchors, self.links, self.loads, self.nav = set(), [], [], []
        self.words, self.reading, self.skipping = "", article, False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.add(values.get("id"))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
            if "md-nav__link" in values.get("class", ""):
                self.nav.append(values["href"])
        elif "src" in values or tag == "link":
            self.loads.append(values.get("src") or values["href"])
        self.reading |= tag == "article"
        self.skipping |= tag == "a" and values.get("class") == "headerlink"
        if tag in SHOWN and self.reading:
            self.words += f" <{tag}> "

    def handle_endtag(self, tag):
        self.reading &= tag != "article"
        self.skipping &= tag != "a"
        if tag in SHOWN:
            self.words += " "

    def handle_data(self, data):
        if self.reading and not self.skipping:
            self.words += data


@pytest.fixture(scope="module")
def pages(site):
    return {
        path.relative_to(site).as_posix(): Html(path.read_text(encoding="utf-8"), article=False)
        for path in site.rglob("*.html")
    }


def test_it_is_built_without_warnings(built):
    _, done = built
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(?:WARNING|ERROR).*", done.stdout + done.stderr, re.MULTILINE) == []


def test_every_page_is_in_the_navigation(pages):
    assert {f"{name}.html" for name in PAGES.values()} <= set(pages["index.html"].nav)


def test_every_link_leads_somewhere(site, pages):
    seen = 0
    for name, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", (name, link)
                assert link not in page.loads, (name, link)
                continue
            # Only the page for addresses that do not exist is shown at any depth, and begins at the root.
            folder = site if name == "404.html" else (site / name).parent
            target = (folder / unquote(parts.path).lstrip("/")) if parts.path else site / name
            if name == "404.html" and target == site:
                target = site / "index.html"
            assert target.is_file(), (name, link)
            inside = target.resolve().relative_to(site.resolve()).as_posix()
            assert not parts.fragment or unquote(parts.fragment) in pages[inside].anchors, (name, link)
            seen += 1
    assert seen > 1000


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_it_reads_as_the_file_does(site, pages, path):
    """mkdocs has another dialect of Markdown than the viewers of repositories: lists, tables, comments, and more."""
    there = MarkdownIt("commonmark").enable("table").render(path.read_text(encoding="utf-8"))
    here = pages[f"{PAGES[path]}.html"]
    assert here.words.split() == Html(there, article=True).words.split()


@pytest.mark.skipif(FOUND is None, reason=MISSING)
def test_it_works_from_a_folder(site):
    with browser() as chromium:
        tab = Tab(chromium)
        for name in ("index", "overview", "results", "research/ent-auto"):
            for width in (390, 1280):
                tab.size(width, 900, touch=width == 390)
                tab.goto(site / f"{name}.html")
                assert tab.run("document.documentElement.scrollWidth") <= width
                assert tab.run("[...document.images].filter((image) => !image.naturalWidth).length") == 0
                assert tab.complaints() == []
                assert [address for address in tab.requests() if not address.startswith("file:")] == []
        tab.type(".md-search__input", "speculate and correc")
        tab.key("t")
        end = time.monotonic() + 20
        while not (found := tab.texts(".md-search-result__link h2")) and time.monotonic() < end:
            tab.settle()
        assert "Speculate and correct" in found
        assert tab.complaints() == []
