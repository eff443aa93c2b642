"""The page around the data: one HTML file that loads nothing and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

SCRIPTS = ("data", "dom", "charts", "tip", "cards", "list", "groups", "edge", "main")
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def shell() -> tuple[str, str]:
    """What stands before the data, and what behind it."""
    style = _resource("page.css") + _resource("narrow.css")
    script = '"use strict";\n(() => {\n' + "".join(_resource(f"{name}.js") for name in SCRIPTS) + "})();\n"
    policy = POLICY.format(script=_digest(script), style=_digest(style))
    page = _resource("page.html").replace("{{policy}}", policy).replace("{{style}}", style)
    before, _, after = page.partition("{{data}}")
    return before, after.replace("{{script}}", script)


def _resource(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
