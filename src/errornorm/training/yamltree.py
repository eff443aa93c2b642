"""YAML 1.2 as plain values, and where each key and value stands. No object is ever made from a tag."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

try:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode
    from ruamel.yaml.reader import ReaderError
except ImportError as error:
    raise ImportError("training needs more packages: pip install errornorm[train]") from error

from ..data.lines import Where, reading
from . import yamlwords

MAX_BYTES = 2**18
MAX_NODES = 10_000  # with aliases written out
MAX_DEPTH = 40
SHOWN = 20  # faults

Keys = tuple[Any, ...]  # from the root: keys of mappings, indexes of lists
_HALF = re.compile("[\ud800-\udfff]")  # of a character in UTF-16


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a file: one line."""

    where: Where
    keys: str
    text: str

    def __str__(self) -> str:
        place = str(self.where)
        named = f"{self.keys}: " if self.keys and place != f"--set {self.keys}" else ""
        return f"{place}: {named}{' '.join(self.text.split())}"


class ConfigError(ValueError):
    """What is wrong in a configuration: a line for each problem, with its place."""


@dataclass(frozen=True, slots=True)
class Place:
    key: Where
    value: Where
    text: str = ""  # a scalar as it is written, without its quotes
    style: str = ""  # its quote, or the | or > of a block


@dataclass(slots=True)
class Tree:
    value: Any
    places: dict[Keys, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def shown(keys: Keys) -> str:
    """Keys with dots between them, on one line."""
    texts = [yamlwords.short(str(key)) for key in keys]
    return ".".join(text if text.isprintable() else repr(text) for text in texts)


def read(path: Path) -> Tree:
    """A file's values."""
    with reading(path), path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        _refuse(Where(str(path), 1, 1), f"longer than {MAX_BYTES // 1024} KB; this is no configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        line, column = _line_column(before, len(before))
        keys = yamlwords.keys_at(f"{before}?".split("\n"), line)
        _refuse(Where(str(path), line, column), f"not UTF-8 (byte 0x{raw[error.start]:02x}); save it as UTF-8", keys)
    return parse(text, str(path))


def parse(text: str, name: str, lines: bool = True) -> Tree:
    """A text's values. Places have no lines if the text is a single value of the command line."""
    text = re.sub(r"\r\n?", "\n", text)
    if found := re.search(r"^%YAML\s+(?!1\.2\b).*", text, re.MULTILINE):
        line, column = _line_column(text, found.start())
        _refuse(Where(name, line, column), f"{found[0].strip()}: this is read as YAML 1.2; remove the line")
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = MAX_DEPTH
    yaml.composer.warn_double_anchors = False  # YAML allows it
    try:
        root = yaml.compose(text)
        return _Builder(name, lines).tree(root)
    except YAMLError as error:
        raise ConfigError(str(_syntax(error, text, name, lines))) from None
    except RecursionError:
        _refuse(Where(name, int(lines), 1), "nested too deeply")
    except (ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(str(_escape(text, name, lines))) from None


def _refuse(where: Where, text: str, keys: str = "") -> NoReturn:
    raise ConfigError(str(Fault(where, keys, text)))


def _line_column(text: str, index: int) -> tuple[int, int]:
    before = text[:index].split("\n")
    return len(before), len(before[-1]) + 1


def _syntax(error: YAMLError, text: str, name: str, lines: bool) -> Fault:
    rows = text.split("\n")
    if isinstance(error, ReaderError):
        line, column = _line_column(text, error.position)
        words = f"a character that YAML does not allow (0x{ord(text[error.position]):02x}); remove it"
    else:
        assert isinstance(error, MarkedYAMLError)
        line, column, words = yamlwords.syntax(error, rows)
    if not lines:
        return Fault(Where(name, 0), "", words)
    return Fault(Where(name, line, column), yamlwords.keys_at(rows, line), words)


def _escape(text: str, name: str, lines: bool) -> Fault:
    """What the library does not look at: an escape beyond the last character that there is."""
    found = re.search(r"(?<!\\)(?:\\\\)*(\\U(?!000|0010)[0-9a-fA-F]{8})", text)
    words = f"there is no character {found[1]}; remove it" if found else "not YAML"
    if not lines:
        return Fault(Where(name, 0), "", words)
    line, column = _line_column(text, found.start(1) if found else 0)
    return Fault(Where(name, line, column), yamlwords.keys_at(text.split("\n"), line), words)


class _Builder:
    """Plain values from the nodes of a document."""

    def __init__(self, name: str, lines: bool) -> None:
        self._name, self._lines = name, lines
        self._made = Tree(None)
        self._num = 0
        self._open: list[Node] = []

    def tree(self, root: Node | None) -> Tree:
        start = Where(self._name, 1, 1) if self._lines else Where(self._name, 0)
        self._made.places[()] = Place(start, start)
        if root is not None:
            self._made.value = self._value(root, (), root.start_mark)
        return self._made

    def _where(self, mark: StreamMark) -> Where:
        return Where(self._name, mark.line + 1, mark.column + 1) if self._lines else Where(self._name, 0)

    def _fault(self, mark: StreamMark, keys: Keys, text: str) -> None:
        self._made.faults.append(Fault(self._where(mark), shown(keys), text))

    def _value(self, node: Node, keys: Keys, key: StreamMark) -> Any:
        self._count(node)
        nothing = isinstance(node, ScalarNode) and node.style is None and not node.value  # marked on a line below
        here = Place(self._where(key), self._where(key if nothing else node.start_mark))
        self._made.places[keys] = here
        if isinstance(node, ScalarNode):
            self._made.places[keys] = replace(here, text=node.value, style=node.style or "")
            return self._scalar(node, keys)
        if node in self._open:
            self._fault(key, keys, "an alias of something that it is inside of; write it out")
            return None
        if _kind(node) != ("map" if isinstance(node, MappingNode) else "seq"):
            self._fault(node.start_mark, keys, f"the tag {yamlwords.short(_kind(node))} is not allowed; remove it")
            return None
        self._open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, keys)
            return [self._value(item, (*keys, i), item.start_mark) for i, item in enumerate(node.value)]
        finally:
            self._open.pop()

    def _count(self, node: Node) -> None:
        self._num += 1
        if self._num > MAX_NODES:
            text = f"more than {MAX_NODES} values (each alias counts in full); this is no configuration"
            _refuse(self._where(node.start_mark), text)

    def _mapping(self, node: MappingNode, keys: Keys) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        own: dict[Any, int] = {}  # lines
        for name, value, merged in self._pairs(node, keys):
            if not isinstance(name, ScalarNode):
                self._fault(name.start_mark, keys, "a key must be a word, not a list or a mapping")
                continue
            key = self._key(name, keys)
            if merged and key in found:
                continue
            if key in own:
                text = f"stands here twice, first in line {own[key]}; remove one"
                self._fault(name.start_mark, (*keys, key), text)
                continue
            own |= {} if merged else {key: name.start_mark.line + 1}
            found[key] = self._value(value, (*keys, key), name.start_mark)
        return found

    def _key(self, node: ScalarNode, keys: Keys) -> str:
        """A key that is no text is told, and then taken for one: what follows from it is known by its name."""
        text = str(node.value).encode("utf-8", "backslashreplace").decode()
        before = len(self._made.faults)
        key = self._scalar(node, (*keys, text))
        if not isinstance(key, str) and len(self._made.faults) == before:
            problem = f"a key must be a text; put it in quotes: '{yamlwords.short(text)}'"
            self._fault(node.start_mark, (*keys, text), problem)
        return key if isinstance(key, str) else text

    def _pairs(self, node: MappingNode, keys: Keys) -> Iterator[tuple[Node, Node, bool]]:
        """Keys and values: its own, then those that it merges."""
        merges: list[Node] = []
        for name, value in node.value:
            if _kind(name) == "merge":
                merges += value.value if _kind(value) == "seq" else [value]
            else:
                yield name, value, False
        for other in merges:
            self._count(other)
            if other in self._open or not isinstance(other, MappingNode):
                self._fault(other.start_mark, (*keys, "<<"), "must be an alias of a mapping, such as *defaults")
                continue
            self._open.append(other)
            yield from ((name, value, True) for name, value, _ in self._pairs(other, keys))
            self._open.pop()

    def _scalar(self, node: ScalarNode, keys: Keys) -> Any:
        text, kind = str(node.value), _kind(node)
        if kind == "str" and node.style is None and re.fullmatch(r"[-+]?\.\d+[eE]\d+", text):
            kind = "float"  # the library wants a sign in the exponent here, YAML does not
        make = _SCALARS.get(kind)
        if make is None:
            self._fault(node.start_mark, keys, f"the tag {yamlwords.short(kind)} is not allowed; remove it")
            return None
        if half := _HALF.search(text):
            self._fault(node.start_mark, keys, f"half a character ({half[0]!r}); write it whole, without escapes")
            return None
        try:
            return make(text)
        except (KeyError, ValueError):
            self._fault(node.start_mark, keys, f"{yamlwords.short(text)!r} cannot be read as {kind}")
            return None


def _kind(node: Node) -> str:
    return str(node.tag).removeprefix("tag:yaml.org,2002:")


def _int(text: str) -> int:
    digits = text.replace("_", "")
    number = int(digits, 0) if digits.lstrip("+-")[1:2].isalpha() else int(digits)
    if number.bit_length() > 64:
        raise ValueError("nothing here is so large")
    return number


def _float(text: str) -> float:
    return float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _int,
    "float": _float,
    **dict.fromkeys(("str", "timestamp", "merge", "value"), str),
}


def all_faults(faults: Sequence[Fault]) -> ConfigError:
    """One error for all of them, by their place."""
    lines = list(dict.fromkeys(str(fault) for fault in sorted(faults, key=_order)))
    more = [f"{faults[0].where.file}: and {len(lines) - SHOWN} more problems"] if len(lines) > SHOWN else []
    return ConfigError("\n".join(lines[:SHOWN] + more))


def _order(fault: Fault) -> tuple[bool, int, int]:
    return fault.where.line == 0, fault.where.line, fault.where.column or 0
