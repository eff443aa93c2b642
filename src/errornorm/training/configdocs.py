"""The settings described: a JSON schema for editors, and a page for readers. Both come from the models alone."""

from __future__ import annotations

import json
from typing import Any

from .config import TrainConfig
from .configwords import SECTIONS
from .settings import MOST

INTRO = """# Settings of a run

A run is described by a YAML file. `task`, `output` and `data.train` are needed, all else has a default:

```yaml
task: translation
output: runs/first
data:
  train: {path: train.jsonl}
  valid: {path: valid.jsonl}
objective: ent_fraction(0.1, start=500)
```

On the command line, `--set training.steps=200` replaces what the file says; `--set data.train.0.path=other.jsonl`
names an item of a list by its number, from 0. The file is read as YAML 1.2: `3e-4` is a number, `yes` is a text.
"""


def schema() -> dict[str, Any]:
    """JSON schema of a configuration file, in the dialect 2020-12."""
    made = TrainConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "errornorm train"}


def reference() -> str:
    """docs/config.md."""
    made = schema()
    models: dict[str, list[str]] = {}
    for keys, model in SECTIONS.items():
        models.setdefault(model.__name__, []).append(".".join(keys))
    parts = [INTRO]
    for name, places in models.items():
        about = made if name == TrainConfig.__name__ else made["$defs"][name]
        title = ", ".join(f"`{place}`" for place in places if place) or "Top level"
        rows = [
            _row(key, entry, key in about.get("required", ()), made["$defs"])
            for key, entry in about["properties"].items()
        ]
        head = ["| setting | type | default | description |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", about["description"], "", *head, *rows, ""]))
    return "\n".join(parts)


def _row(key: str, entry: dict[str, Any], required: bool, defs: dict[str, Any]) -> str:
    default = "required" if required else _default(entry.get("default"), entry)
    about = entry.get("description") or defs[entry["$ref"].rpartition("/")[2]]["description"]
    cells = [f"`{key}`", _type(entry), default, " ".join(about.split())]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(value: Any, entry: dict[str, Any]) -> str:
    if value is None or "$ref" in entry:
        return ""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _type(entry: dict[str, Any]) -> str:
    if "$ref" in entry:
        return "section"
    if "anyOf" in entry:
        return " or ".join(_type(one) for one in entry["anyOf"] if one.get("type") != "null")
    if "enum" in entry:
        return ", ".join(f"`{choice}`" for choice in entry["enum"])
    if entry["type"] == "array":
        return f"list of: {_type(entry['items'])}"
    if entry["type"] in ("integer", "number"):
        name = "whole number" if entry["type"] == "integer" else "number"
        signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
        return " ".join(
            [
                name,
                ", ".join(f"{sign} {entry[limit]}" for limit, sign in signs.items() if entry.get(limit, MOST) != MOST),
            ]
        ).strip()
    if entry["type"] == "string":
        return "path" if entry.get("format") == "path" else "text"
    return {"boolean": "`true`, `false`", "object": "mapping"}[entry["type"]]
