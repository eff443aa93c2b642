"""Methods from text: `ent_fraction(fraction=0.1, start=500)` in a config file or on the command line.

The text is parsed and checked against the method's signature. Nothing in it is ever evaluated.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from typing import Any

from .methods import METHODS
from .objectives import Objective

LONGEST = 1000


def objective(text: str) -> Objective:
    """The objective that a text describes.

    Example:
        >>> objective("ent_fraction(0.2, start=500)")
        ent_fraction(fraction=0.2, unit='token', scope='batch', start=500, keep_first=0, max_dropped=1.0)
        >>> objective("mle")
        mle(start=0)
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueError(f"an objective is a text of at most {LONGEST} characters, such as 'ent_fraction(0.1)'")
    call = _parse(text)
    name, args, kwargs = (call.id, [], {}) if isinstance(call, ast.Name) else _parts(call, text)
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}{near(name, METHODS)}; there are {', '.join(METHODS)}")
    signature = inspect.signature(METHODS[name])
    for key in kwargs:
        if key not in signature.parameters:
            raise ValueError(f"{name} has no parameter {key!r}{near(key, signature.parameters)}; it is {_shown(name)}")
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}; the method is {_shown(name)}") from None
    return METHODS[name](*bound.args, **bound.kwargs)


def _parse(text: str) -> ast.Name | ast.Call:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r}: column {error.offset}: not of the form method(name=value, ...)") from None
    except (ValueError, RecursionError, MemoryError):  # a NUL, or nested beyond reason
        raise ValueError(f"{text!r}: not of the form method(name=value, ...)") from None
    if isinstance(tree, ast.Name) or (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        return tree
    raise ValueError(f"{text!r}: not of the form method(name=value, ...)")


def _parts(call: ast.Call, text: str) -> tuple[str, list[Any], dict[str, Any]]:
    assert isinstance(call.func, ast.Name)

    def literal(node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError):
            where = f"column {node.col_offset + 1}"
            raise ValueError(f"{text!r}: {where}: a value must be a number or a quoted word") from None

    kwargs = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError(f"{text!r}: column {keyword.value.col_offset + 1}: ** is not allowed here")
        if keyword.arg in kwargs:
            raise ValueError(f"{text!r}: column {keyword.col_offset + 1}: {keyword.arg} is given twice")
        kwargs[keyword.arg] = literal(keyword.value)
    return call.func.id, [literal(node) for node in call.args], kwargs


def near(word: str, words: Any) -> str:
    found = difflib.get_close_matches(word, list(words), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _shown(name: str) -> str:
    """The signature without annotations."""
    parameters = inspect.signature(METHODS[name]).parameters.values()
    return f"{name}({', '.join(f'{p.name}={p.default!r}' for p in parameters)})"
