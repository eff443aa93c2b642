"""Values of records, which are those of JSON: found by a dotted name, made fit for JSON, and not too deep."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

MISSING = object()  # in place of a field's value
DEEPEST = 100  # objects and lists inside each other; Python itself can read a thousand, but not work on them


def value_at(fields: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or `MISSING`.

    >>> value_at({"meta": {"site": "a.org"}}, "meta.site")
    'a.org'
    """
    if name in fields:
        return fields[name]
    before, dot, behind = name.partition(".")
    inner = fields.get(before) if dot else None
    return value_at(inner, behind) if isinstance(inner, Mapping) else MISSING


def finite(value: Any) -> Any:
    """The same with null for what is no number in JSON: NaN, by which other tools say that there is none, and Inf."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def too_deep(text: str, value: Any) -> bool:
    """Whether what was read from a JSON text has more than `DEEPEST` objects and lists inside each other."""
    return text.count("[") + text.count("{") > DEEPEST and _depth(value) > DEEPEST


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        depth += 1
        level = [one for inner in level for one in (inner.values() if isinstance(inner, dict) else inner)]
    return depth


def as_line(value: Any) -> str:
    """A line of JSON.

    >>> as_line({"text": "été", "score": math.inf})
    '{"text": "été", "score": null}\\n'
    """
    return escaped(json.dumps(finite(value), ensure_ascii=False, default=str)) + "\n"


def escaped(text: str) -> str:
    """JSON that UTF-8 can hold: half a character, as in a file name that is not UTF-8, becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode()
