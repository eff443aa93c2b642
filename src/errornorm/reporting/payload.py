"""All that the page knows, as JSON that fits into it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow as pa

from ..curation.naming import output_options
from ..scoring.objects import fields_of
from ..scoring.table import CUTOFF, Scores
from .gather import REASONS, Gathered
from .groups import Grouping
from .quarantined import Quarantined
from .sentences import COLUMNS, encode
from .texts import shown, to_json

NAMED_VALUES = 80  # of the field the user names
LINES, KINDS = 200, 20  # of the quarantine
NAME, VALUE = 120, 400  # characters


@dataclass(frozen=True, slots=True)
class Payload:
    text: str
    sentences: int


def payload(rows: Scores, found: Gathered, lost: Quarantined, title: str, room: int) -> Payload:
    """JSON of at most `room` bytes: everything but the sentences, then as many of those as fit."""
    shown_values = {id(grouping): values_of(grouping) for grouping in found.groupings.all()}
    chosen = found.chosen(lambda grouping: shown_values[id(grouping)])
    groupings = [_grouping(grouping, shown_values[id(grouping)]) for grouping in found.groupings.all()]
    head = {**about(rows, found, lost, title), "groupings": groupings}
    start = to_json(head)[:-1] + ',"sentences":['
    left = room - len(start.encode()) - 2
    texts = _sentences(rows, found, chosen, shown_values)
    kept: dict[int, str] = {}
    for row in chosen:
        size = len(texts[row].encode()) + 1
        if size <= left:
            kept[row] = texts[row]
            left -= size
    return Payload(start + ",".join(kept[row] for row in sorted(kept)) + "]}", len(kept))


def values_of(grouping: Grouping) -> list[int]:
    return [number for number in grouping.largest(NAMED_VALUES) if grouping.rows_of(number)]


def about(rows: Scores, found: Gathered, lost: Quarantined, title: str) -> dict[str, Any]:
    """What was scored, and the counts of all of it."""
    meta, tally = rows.meta, found.tally
    return {
        "title": shown(title, NAME),
        "facts": facts(meta),
        "command": shown(shlex.join(map(str, meta.get("command") or [])), 2 * VALUE),
        "context": shown(context_name(meta), 40),
        "kept": shown(output_options(meta.get("corpus") or {}), VALUE),
        "cutoff": float((meta.get("settings") or {}).get("cutoff", CUTOFF)),
        "counts": {
            "records": meta["records"],
            "used": tally.rows,
            "quarantined": meta["quarantined"],
            "tokens": tally.tokens,
            "undefined": tally.undefined,
        },
        "means": [round(tally.norm_mean, 4), round(tally.loss_mean, 4)],
        "norm": tally.norm.tolist(),
        "loss": tally.loss.tolist(),
        "rows_by_norm": tally.rows_by_norm.tolist(),
        "rows_by_loss": tally.rows_by_loss.tolist(),
        "reasons": [name for name, _ in REASONS.values()],
        "quarantine": {
            "reasons": [[shown(reason, NAME), count] for reason, count in lost.reasons.most_common(KINDS)],
            "kinds": len(lost.reasons),
            "lines": [[shown(where, NAME), *(shown(text, VALUE // 2) for text in rest)] for where, *rest in lost.lines],
        },
    }  # fmt: skip


def context_name(meta: Mapping[str, Any]) -> str:
    """Of what the model read before the text: a field, or a prompt made of fields."""
    found = str((meta.get("settings") or {}).get("context") or "context")
    field = found.removeprefix("{").removesuffix("}")
    return "prompt" if "{" in field else field


def dataset_name(corpus: Mapping[str, Any]) -> str:
    """Name, subset and split, as far as they are known."""
    found = corpus.get("dataset") or ""
    return " ".join(str(part) for part in found if part) if isinstance(found, list) else str(found)


def facts(meta: Mapping[str, Any]) -> list[list[str]]:
    """Names and values for the header and the end of the page."""
    model, corpus, settings = (meta.get(name) or {} for name in ("model", "corpus", "settings"))
    files = " + ".join(str(corpus[name]) for name in ("path", "pair") if corpus.get(name))
    versions = ", ".join(f"{name} {version}" for name, version in (meta.get("versions") or {}).items())
    rows = {
        "Model": model.get("path"),
        "Class": model.get("name"),
        "Kind": model.get("kind"),
        "Parameters": f"{model['parameters']:,}" if isinstance(model.get("parameters"), int) else None,
        "Vocabulary": f"{model['vocab']:,}" if isinstance(model.get("vocab"), int) else None,
        "Model hash": model.get("sha256"),
        "Corpus": files or dataset_name(corpus),
        "Format": corpus.get("format"),
        "Text": corpus.get("text_field"),
        "Context": settings.get("context"),
        "Data hash": corpus.get("sha256"),
        "Settings": ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items() if value is not None),
        "errornorm": meta.get("errornorm"),
        "Versions": versions,
    }
    return [[name, shown(str(value), VALUE)] for name, value in rows.items() if value not in (None, "")]


def _grouping(grouping: Grouping, numbers: list[int]) -> dict[str, Any]:
    """The values to show with their counts, and all others together."""
    names = list(grouping.index)
    tables = grouping.tables
    size = len(tables["rows"]) if tables else 0
    others = [k for k in range(size) if k not in set(numbers)]

    def entry(name: str, which: list[int]) -> list[Any]:
        tokens = int(sum(tables["tokens"][k] for k in which))
        places = [_trimmed(tables[kind][which].sum(axis=0).tolist()) for kind in ("norm_place", "loss_place")]
        means = [round(float(sum(tables[kind][k] for k in which)) / max(tokens, 1), 4) for kind in ("norm", "nll")]
        return [name, int(sum(tables["rows"][k] for k in which)), tokens, *means, *places]

    groups = [entry(shown(names[k], NAME), [k]) for k in numbers]
    rest = entry("", others) if others and any(tables["rows"][k] for k in others) else None
    return {
        "name": shown(grouping.name, NAME),
        "groups": groups,
        "rest": rest,
        "values": len(names),
        "more": grouping.full,
    }


def _trimmed(counts: list[int]) -> list[int]:
    """Without the zeros at the end."""
    while counts and not counts[-1]:
        counts.pop()
    return counts


def _sentences(
    rows: Scores, found: Gathered, chosen: dict[int, int], shown_values: dict[int, list[int]]
) -> dict[int, str]:
    """The second walk: the texts of the chosen rows."""
    groupings = found.groupings.all()
    places = [{number: place for place, number in enumerate(shown_values[id(g)])} for g in groupings]
    order = numpy.array(sorted(chosen), numpy.int64)
    texts: dict[int, str] = {}
    passed = 0
    for some in rows.batches(COLUMNS):
        begin, end = numpy.searchsorted(order, [passed, passed + len(some)])
        wanted = order[begin:end]
        taken = some.take(pa.array(wanted - passed))
        for row, values, fields in zip(wanted.tolist(), taken.to_pylist(), fields_of(taken), strict=True):
            names = found.groupings.values(fields, len(values["error_norm"]))
            numbers = [p.get(g.index.get(name, -1), -1) for g, p, name in zip(groupings, places, names, strict=True)]
            texts[row] = encode({**values, "fields": fields}, chosen[row], numbers)
        passed += len(some)
    return texts
