"""Methods from text: `ent_fraction(fraction=0.1, start=500)` in a config file or on the command line.

The text is parsed and checked against the method's signature. Nothing in it is ever evaluated.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from typing import Any

from .methods import METHODS
from .near import near
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
        where = f"column {LONGEST + 1}: " if isinstance(text, str) else ""
        raise ValueError(f"{where}an objective is a text of at most {LONGEST} characters, such as 'ent_fraction(0.1)'")
    call = _parse(text)
    name, args = (call.id, []) if isinstance(call, ast.Name) else _parts(call, text)
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise ValueError(f"{_column(text, call)}: unknown method {name!r}{near(name, METHODS)}; there are {known}")
    values = _named(name, args, text)
    try:
        return METHODS[name](**{key: value for key, (_, value) in values.items()})
    except ValueError as error:
        found = re.match(r"(?:\w+: )?(\w+)=", str(error))
        node = values[found[1]][0] if found and found[1] in values else call
        raise ValueError(f"{_column(text, node)}: {error}") from None


Argument = tuple[ast.keyword | ast.expr, Any]  # where it stands, and its value


def _parse(text: str) -> ast.Name | ast.Call:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, about how numbers and texts are written
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # or a NUL, or nested beyond reason
        at = text.find("\0") + 1
        if not at and isinstance(error, SyntaxError):
            at = _index(text, error.lineno or 1) + (error.offset or 1)
        at = min(max(at, 1), len(text) + 1)
        raise ValueError(f"{text!r}: column {at}: not of the form method(name=value, ...)") from None
    if isinstance(tree, ast.Name) or (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)):
        return tree
    raise ValueError(f"{text!r}: {_column(text, tree)}: not of the form method(name=value, ...)")


def _index(text: str, row: int) -> int:
    """Where a row of what was parsed begins in the text."""
    return len(text) - len(text.lstrip()) + len("".join(_rows(text)[: row - 1]))


def _rows(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n?|\n|$)", text.strip())


def _column(text: str, node: ast.expr | ast.keyword) -> str:
    """Counted from 1, in characters; Python counts bytes."""
    inside = len(_rows(text)[node.lineno - 1].encode()[: node.col_offset].decode())
    return f"column {_index(text, node.lineno) + inside + 1}"


def _parts(call: ast.Call, text: str) -> tuple[str, list[tuple[str | None, Argument]]]:
    """Its name, and the arguments with theirs."""
    assert isinstance(call.func, ast.Name)

    def literal(node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise ValueError(f"{text!r}: {_column(text, node)}: a value must be a number or a quoted word") from None

    found: list[tuple[str | None, Argument]] = [(None, (node, literal(node))) for node in call.args]
    for keyword in call.keywords:
        if keyword.arg is None:
            raise ValueError(f"{text!r}: {_column(text, keyword.value)}: ** is not allowed here")
        if keyword.arg in [name for name, _ in found]:
            raise ValueError(f"{text!r}: {_column(text, keyword)}: {keyword.arg} is given twice")
        found.append((keyword.arg, (keyword, literal(keyword.value))))
    return call.func.id, found


def _named(name: str, args: list[tuple[str | None, Argument]], text: str) -> dict[str, Argument]:
    """The arguments by the method's own names for them."""
    parameters = inspect.signature(METHODS[name]).parameters
    free = iter([p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD])
    values: dict[str, Argument] = {}
    for given, argument in args:
        key = given or next(free, None)
        problem = ""
        if key is None:
            problem = f"too many positional arguments; the method is {_shown(name)}"
        elif key not in parameters:
            problem = f"{name} has no parameter {key!r}{near(key, parameters)}; it is {_shown(name)}"
        elif key in values:
            problem = f"multiple values for {key}; the method is {_shown(name)}"
        if problem or key is None:
            raise ValueError(f"{_column(text, argument[0])}: {problem}")
        values[key] = argument
    return values


def _shown(name: str) -> str:
    """The signature without annotations."""
    parameters = inspect.signature(METHODS[name]).parameters.values()
    return f"{name}({', '.join(f'{p.name}={p.default!r}' for p in parameters)})"
