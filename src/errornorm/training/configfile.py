"""Configurations in files: read with every problem named by its place, written, and described for editors and docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from pydantic import ValidationError
except ImportError as error:
    raise ImportError("training needs more packages: pip install errornorm[train]") from error

from ..data.lines import Where
from . import configwords, yamltree, yamlwrite
from .config import Source, TrainConfig
from .configdocs import reference, schema
from .yamltree import ConfigError, Fault, Keys, Place, Tree

__all__ = ["ConfigError", "dump", "load", "reference", "schema"]


def load(path: Path, sets: Sequence[str] = ()) -> TrainConfig:
    """A run from a YAML file.

    Args:
        path: The file.
        sets: Settings that replace the file's, as `training.steps=100` or `data.train.0.path=corpus.jsonl`. The
            value is YAML.

    Raises:
        ConfigError: A line for each problem: file, line, column, setting, what is wrong and what to do.
        DataError: The file cannot be read.
    """
    tree = yamltree.read(path)
    if not isinstance(tree.value, dict):
        found = "empty" if tree.value is None else "a list" if isinstance(tree.value, list) else "a text"
        problem = f"must have lines of key: value, but is {found}; begin with task: translation"
        raise yamltree.all_faults(tree.faults or [Fault(tree.places[()].value, "", problem)])
    for text in sets:
        _set(tree, text)
    faults = list(tree.faults)
    try:
        config = TrainConfig.model_validate(tree.value)
    except ValidationError as error:
        wrong = configwords.faults(tree, error.errors(include_url=False))
        faults += [fault for fault in wrong if not configwords.known(fault, tree.faults)]
    if faults:
        raise yamltree.all_faults(faults)
    return config


def _set(tree: Tree, text: str) -> None:
    """Put a setting of the command line in its place."""
    name, equals, written = text.partition("=")
    name = name.strip()
    where = Where(f"--set {name}", 0)
    if not equals or not all(name.split(".")):
        tree.faults.append(Fault(where, "", "must be of the form key.path=value, such as training.steps=100"))
        return
    try:
        value = yamltree.parse(written, where.file, lines=False)
    except ConfigError as error:
        tree.faults.append(Fault(where, "", str(error).removeprefix(f"{where}: ")))
        return
    keys = _descend(tree, name.split("."), where)
    if keys is None:
        return
    for old in [old for old in tree.places if old[: len(keys)] == keys]:
        del tree.places[old]
    tree.places |= {(*keys, *inside): place for inside, place in value.places.items()}
    tree.faults += value.faults
    parent = tree.value
    for key in keys[:-1]:
        parent = parent[key]
    _put(parent, keys[-1], value.value)


def _put(parent: Any, key: Any, value: Any) -> None:
    if isinstance(parent, list) and key == len(parent):
        parent.append(value)
    else:
        parent[key] = value


def _descend(tree: Tree, names: Sequence[str], where: Where) -> Keys | None:
    """The keys of a name, with sections and lists made on the way; none if it leads nowhere."""
    keys: Keys = ()
    inside = tree.value
    for name, after in zip(names, [*names[1:], None], strict=True):
        single = isinstance(inside, dict) and configwords.SECTIONS.get(keys) is Source
        if single and name == "0":
            continue  # the only corpus, without a list around it
        key, problem = _key(inside, name, ".".join(map(str, keys)), single)
        if problem:
            tree.faults.append(Fault(where, "", problem))
            return None
        keys = (*keys, key)
        if after is None:
            return keys
        inside = _inside(tree, inside, keys, where, after)
    return keys


def _key(inside: Any, name: str, here: str, single: bool) -> tuple[Any, str]:
    """A name as a key or an index, and why it cannot be one."""
    if isinstance(inside, list):
        if not name.isdecimal():
            return name, f"{here} is a list; name an item by its number, such as {here}.0.{name}"
        if int(name) > len(inside):
            return name, f"{here} has {len(inside)} items, counted from 0; or give the whole list as {here}=[...]"
        return int(name), ""
    if not isinstance(inside, dict):
        return name, f"{here} is a single value, there is no {name} inside"
    if single and name.isdecimal():
        return name, f"{here} is a single corpus; write it as a list in the file to add one"
    return name, ""


def _inside(tree: Tree, parent: Any, keys: Keys, where: Where, after: str) -> Any:
    """What is at a key; made if there is nothing."""
    there = keys[-1] in parent if isinstance(parent, dict) else keys[-1] < len(parent)
    found = parent[keys[-1]] if there else None
    if found is None:
        found = [] if after.isdecimal() else {}
        tree.places[keys] = Place(where, where)
        _put(parent, keys[-1], found)
    return found


def dump(config: TrainConfig) -> str:
    """All settings as YAML, defaults too; `load` makes the same configuration of it."""
    return yamlwrite.write(config.model_dump())
