"""What is wrong with a text that is no YAML, in a user's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ruamel.yaml.error import MarkedYAMLError

NO_COLON = "not of the form key: value, with a space after the colon"
NO_QUOTE = "this quote is not closed; add the closing one at the end of the text"
# In the parser's words; whether what was begun is to blame, not where it was noticed; in ours.
PROBLEMS = [
    (r"character '\\t'", False, "a tab; indent by spaces"),
    (r"end of stream", True, NO_QUOTE),
    (r"document separator", True, NO_QUOTE),
    (r"expected ',' or '(.)'", True, "this bracket is not closed; add a {0}, or a comma between items"),
    (r"found '[\]}]'", False, "a closing bracket that nothing opened; remove it, or put the text in quotes"),
    (r"node content, but found '(.)'", False, "a {0} that nothing stands before; remove it, or put the text in quotes"),
    (r"found '<stream end>'", False, "the file ends inside a bracket; close it"),
    (r"chomping|comment or a line break", False, "| and > begin a block of text; put a text with them in quotes"),
    (r"document start", False, "this does not go on what stands above; check the quotes and the indentation"),
    (r"mapping values are not allowed", False,
     "a colon too many; check the indentation, and put a text with a colon in quotes"),
    (r"could not find expected ':'", True, NO_COLON),
    (r"sequence entries are not allowed", False, "a dash too many; an item of a list begins on a line of its own"),
    (r"found '<scalar>'", False, "text that does not belong here; check the quotes and the indentation"),
    (r"<block end>", False, "the indentation does not fit the lines above"),
    (r"undefined alias '(.*)'", False, "there is no anchor &{0} above; put a text with * in quotes"),
    (r"alphabetic or numeric character", False, "a name is missing behind * or &; put a text with them in quotes"),
    (r"character '(.)' that cannot start", False, "a text cannot begin with {0}; put it in quotes"),
    (r"another document", False, "a second document; leave only one"),
    (r"unknown escape character", False, "a backslash means something else in double quotes; use single ones"),
    (r"maximum depth", False, "nested too deeply"),
]  # fmt: skip
_KEY = re.compile(r"^((?:\s|-\s)*)(['\"]?)(\w[\w.-]*)\2\s*")
_PARENT = re.compile(r":\s*(&\S+\s*)?[\[{]?\s*(#.*)?$")
_PAIR = re.compile(r":(\s|$)")
_OPEN_QUOTE = re.compile(r""":\s+(?:'[^']*|"[^"]*)$""")


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def syntax(error: MarkedYAMLError, rows: Sequence[str]) -> tuple[int, int, str]:
    """Line and column from 1, and the problem."""
    problem = str(error.problem)
    begun, words = False, f"not YAML: {problem}"
    for pattern, at_start, text in PROBLEMS:
        if found := re.search(pattern, problem):
            begun, words = at_start, text.format(*found.groups())
            break
    mark = error.context_mark if begun and error.context_mark else error.problem_mark
    if mark is None:
        return 1, 1, words
    line, column = mark.line + 1, mark.column + 1
    return _cause(rows, line, words) or (line, column, words)


def _cause(rows: Sequence[str], line: int, words: str) -> tuple[int, int, str] | None:
    """A line above that is more likely to be wrong than the one where it was noticed."""
    above = [number for number in range(1, line) if rows[number - 1].split("#")[0].strip()]
    if "check the quotes" in words:
        for number in above:
            if found := _OPEN_QUOTE.search(rows[number - 1].split(" #")[0].rstrip()):
                return number, found.end() - len(found[0].lstrip(": ")) + 1, NO_QUOTE
    if "a colon too many" in words and above:
        before, here = rows[above[-1] - 1], rows[line - 1]
        indent = len(before) - len(before.lstrip())
        if indent == len(here) - len(here.lstrip()) and not _PAIR.search(before):
            return above[-1], indent + 1, NO_COLON
    return None


def keys_at(rows: Sequence[str], line: int) -> str:
    """The dotted key of a line, by its indentation."""
    keys: list[str] = []
    inside = 0
    if rows[line - 1].lstrip().startswith(("#", "---", "...", "%")):
        return ""
    for row in reversed(rows[:line]):
        found = _KEY.match(row)
        if found and (not keys or (len(found[1]) < inside and _PARENT.match(row, found.end()))):
            keys.insert(0, short(found[3]))
            inside = len(found[1])
    return ".".join(keys)
