"""What is wrong with a setting, in a user's words, and where it stands."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from ..data.lines import Where
from ..near import near
from .config import Settings, Source, TrainConfig
from .yamltree import Fault, Keys, Place, Tree, shown
from .yamlwords import short

WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "path_type": "a path",
    "list_type": "a list",
    "dict_type": "a mapping (lines of key: value)",
    "model_type": "a section (lines of key: value)",
}
LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("greater than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
EXAMPLES = {"output": "runs/first", "data": "{train: {path: train.jsonl}}", "train": "{path: train.jsonl}"}
# What other tools call it.
ALSO = {
    "lr": "learning_rate",
    "batch_size": "tokens_per_step",
    "max_tokens": "tokens_per_step",
    "gradient_accumulation_steps": "micro_batches",
    "epochs": "steps",
    "num_train_epochs": "steps",
    "max_steps": "steps",
    "max_grad_norm": "clip",
    "fp16": "precision",
    "bf16": "precision",
    "method": "objective",
    "loss": "objective",
    "criterion": "objective",
    "dev": "valid",
    "validation": "valid",
    "num_beams": "beams",
    "vocab_size": "vocab",
    "save_total_limit": "keep",
}


def _sections(model: type[Settings], keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[Settings]]]:
    yield keys, model
    for name, field in model.model_fields.items():
        if inner := _model(field.annotation):
            yield from _sections(inner, (*keys, name))


def _model(annotation: Any) -> type[Settings] | None:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model(arg))), None)


SECTIONS = dict(_sections(TrainConfig))  # by their keys, without indexes of lists


def section_of(keys: Keys) -> tuple[str, ...]:
    return tuple(key for key in keys if isinstance(key, str))


def faults(tree: Tree, errors: list[Any]) -> list[Fault]:
    """A fault for each error of pydantic, but for what is missing because it is misspelled or elsewhere."""
    meant: set[Keys] = set()
    found = []
    for error in errors:
        keys = _keys(tree, error)
        if error["type"] == "extra_forbidden":
            text, others = _unknown(keys)
            meant.update(others)
        else:
            text = _words(error, keys, tree.places.get(keys))
        found.append((keys, error["input"], Fault(_where(tree, error, keys), shown(keys), text)))
    missing = {key for key, _, _ in found if key not in tree.places} & meant
    emptied = {key for key, value, _ in found if value is None and any(other[: len(key)] == key for other in meant)}
    return [fault for keys, _, fault in found if keys not in missing | emptied]


def known(fault: Fault, others: list[Fault]) -> bool:
    """Whether it only follows from one of the others, which left a gap there."""
    for other in others:
        gap = other.keys.removesuffix(".<<")
        if (gap and f"{fault.keys}.".startswith(f"{gap}.")) or (not fault.where.line and fault.where == other.where):
            return True
    return False


def _keys(tree: Tree, error: Mapping[str, Any]) -> Keys:
    """Where a problem is, in the file's own terms: a single item may stand there without a list around it."""
    named = [int(key) if key.isdigit() else key for key in error.get("ctx", {}).get("key", "").split(".") if key]
    keys: Keys = ()
    value = tree.value
    for key in [*error["loc"], *named]:
        if isinstance(key, int) and isinstance(value, dict) and key not in value:
            continue
        keys = (*keys, key)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
    return keys


def _where(tree: Tree, error: Mapping[str, Any], keys: Keys) -> Where:
    if keys not in tree.places:  # missing: the section that it should be in
        while keys not in tree.places:
            keys = keys[:-1]
        return tree.places[keys].key
    place = tree.places[keys]
    if error["type"] in ("extra_forbidden", "setting"):
        return place.key
    if keys == ("objective",) and place.value.column:
        inside = _inside(place, str(error.get("ctx", {}).get("error", "")))
        return Where(place.value.file, place.value.line, place.value.column + inside)
    return place.value


def _inside(place: Place, problem: str) -> int:
    """How far inside the text of an objective the problem is."""
    text, style = place.text, place.style
    if style in ("|", ">") or set(text) & {"\n", "\\", style}:
        return 0  # not written as it is read
    if found := re.search(r"column (\d+)", problem):
        return len(style) + max(0, min(int(found[1]), len(text)) - 1)
    return 0


def _unknown(keys: Keys) -> tuple[str, list[Keys]]:
    """What to say about a key that its section does not have, and which ones may be meant."""
    section, name = section_of(keys[:-1]), str(keys[-1])
    own = list(SECTIONS[section].model_fields)
    plain = re.sub(r"[\s-]", "_", name.lower())
    for word in (plain, ALSO.get(plain, plain)):
        if word in own:
            return f"unknown setting (did you mean {word}?)", [(*keys[:-1], word)]
        if homes := [inside for inside, model in SECTIONS.items() if word in model.model_fields]:
            said = f"`{word}`" if word == name else f"did you mean `{word}`? It"
            places = _or([".".join(home) or "the top level" for home in homes])
            return f"unknown setting here; {said} belongs to {places}", [(*home, word) for home in homes]
    if close := difflib.get_close_matches(plain, own, 1):
        return f"unknown setting (did you mean {close[0]}?)", [(*keys[:-1], close[0])]
    everywhere = {field: (*inside, field) for inside, model in SECTIONS.items() for field in model.model_fields}
    if close := difflib.get_close_matches(plain, everywhere, 1):
        return f"unknown setting here (did you mean {'.'.join(everywhere[close[0]])}?)", [everywhere[close[0]]]
    return f"unknown setting; {'.'.join(section) or 'the top level'} has {', '.join(own)}", []


def _or(words: list[str]) -> str:
    return " or ".join([*([", ".join(words[:-1])] if words[1:] else []), words[-1]])


def _words(error: Mapping[str, Any], keys: Keys, place: Place | None) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return f"is missing; add {_example(keys)}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "setting":
        return str(context["problem"])
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        meant = near(value.lower(), choices) if isinstance(value, str) else ""
        return f"{_value(value, place)} is not one of {', '.join(choices)}{meant}{_nothing(value)}"
    if kind in LIMITS:
        words, limit = LIMITS[kind]
        return f"must be {words} {str(context[limit]).removesuffix('.0')}, not {_value(value, place)}"
    if kind in ("too_short", "too_long"):
        words, limit = ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
        return f"needs {words} {context[limit]} {'item' if context[limit] == 1 else 'items'}, not {len(value)}"
    if kind == "finite_number":
        return f"must be a finite number, not {_value(value, place)}"
    if kind in WANTED:
        return f"must be {_wanted(kind, keys)}, not {_value(value, place)}{_hint(kind, value, keys, place)}"
    return str(error["msg"])


def _example(keys: Keys) -> str:
    name = keys[-1]
    choices = get_args(SECTIONS[section_of(keys[:-1])].model_fields[name].annotation)
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"one of {', '.join(choices)}, such as {name}: {choices[0]}"
    return f"it, such as {name}: {EXAMPLES[name]}" if name in EXAMPLES else "it"


def _wanted(kind: str, keys: Keys) -> str:
    corpus = SECTIONS.get(section_of(keys)) is Source
    return "a corpus (lines of key: value) or a list of them" if corpus and kind == "list_type" else WANTED[kind]


def _value(value: Any, place: Place | None) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return repr(short(value))
    return short(place.text if place and place.text else str(value))


def _nothing(value: Any) -> str:
    return "; for none, leave it out" if isinstance(value, str) and value.lower() in ("none", "nil") else ""


def _hint(kind: str, value: Any, keys: Keys, place: Place | None) -> str:
    """What to do, if that can be told."""
    written = place.text if place else str(value)
    if value is None:
        section = SECTIONS.get(section_of(keys))
        return "; write its settings below it, indented, or remove it" if section else "; give a value, or remove it"
    if _nothing(value):
        return _nothing(value)
    if kind in ("int_type", "float_type"):
        return _number_hint(kind, value, place)
    if kind == "bool_type":
        return f"; write {_BOOLS[written.lower()]}" if written.lower() in _BOOLS else ""
    if kind in ("string_type", "path_type") and not isinstance(value, dict | list):
        return f"; put it in quotes: '{short(written)}'"
    if SECTIONS.get(section_of(keys)) is Source and isinstance(value, str):
        return f"; write path: {short(value)}"
    if kind == "list_type" and not isinstance(value, dict):
        return f"; write [{short(written)}]"
    if kind == "model_type" and isinstance(value, list | str):
        return "; remove the dashes" if isinstance(value, list) else "; write a colon and a space after a key"
    return ""


_BOOLS = dict.fromkeys(("true", "yes", "y", "on", "1"), "true") | dict.fromkeys(
    ("false", "no", "n", "off", "0"), "false"
)


def _number_hint(kind: str, value: Any, place: Place | None) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"; write {int(value)}"
    if not isinstance(value, str):
        return ""
    plain = re.sub(r"[\s_]|,(?=\d{3}\b)", "", value).replace(",", ".")
    try:
        number = float(plain)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    if kind == "int_type" and number.is_integer() and abs(number) < 1e15:
        plain = str(int(number))
    if place and place.style and plain == value:
        return "; it looks like a number but is a text: remove the quotes"
    return f"; it looks like a number but is a text: write {plain}"
