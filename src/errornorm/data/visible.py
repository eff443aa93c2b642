"""Texts from outside on a terminal: file names, corpora and outputs of models may hold what would steer it."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import category

from .values import finite

MARK = "\N{REPLACEMENT CHARACTER}"
HARMLESS = "\u00ad\u200c\u200d"  # they break words or join letters


def plain(text: str, keep: str = "\n\t") -> str:
    """With a mark in place of everything that does not print: escapes, directions, halves of characters.

    >>> plain("a red\\x1b[31m word")
    'a red\N{REPLACEMENT CHARACTER}[31m word'
    """
    return text if text.isprintable() else "".join(c if _prints(c) or c in keep else MARK for c in text)


def visible(text: str, longest: int = 60) -> str:
    """One line, and not too long."""
    shown = plain(text[: longest + 1], keep="")
    return shown if len(shown) <= longest else shown[: longest - 1] + "\N{HORIZONTAL ELLIPSIS}"


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that people can read; what does not print is escaped, and what is no number in JSON is null.

    >>> json_text({"text": "été \\x9b", "score": float("inf")})
    '{"text": "été \\\\u009b", "score": null}'
    """
    text = json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return "".join(c if c == "\n" or _prints(c) else json.dumps(c)[1:-1] for c in text)


def _prints(char: str) -> bool:
    return char.isprintable() or char in HARMLESS or category(char) == "Zs"
