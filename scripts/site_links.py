"""For mkdocs.yml: what lies beside docs/ is in the site, too, and one link serves it and the repository.

Pages of the repository's root become pages of the site. Any other file outside of docs/ that a page links to is copied.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "docs/results.html": "results-alone.html",  # results.html is what becomes of results.md
}
SOURCES = {site: source for source, site in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, site in PAGES.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        site = PAGES.get(target, target.removeprefix("docs/"))
        if site == target and site not in files.src_uris and (ROOT / target).is_file():
            files.append(File.generated(config, site, abs_src_path=str(ROOT / target)))
        return posixpath.relpath(site, posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)
