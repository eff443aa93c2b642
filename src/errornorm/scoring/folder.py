"""The folder of a table while it is being made: what it was begun with, whether it is the same, and how it ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..data.files import require_utf8, written
from ..data.lines import DataError
from ..training.disk import sync
from .corpus import Reading
from .objects import read_object
from .parts import FOUND, Settings, chunks, items_digest, joint_digest
from .table import META, QUARANTINE, Scores, parts_in

BEGUN = "begun.json"  # what the parts of an unfinished table were made from
OTHER = "{} has scores with another {}: remove it, or choose another output"
OPTIONS = {"records": "part", "tokens": "batch_tokens"}  # settings whose options have other names


def refuse_foreign(folder: Path) -> None:
    """Scores have a folder of their own."""
    require_utf8(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another output")
    known = {META, BEGUN, QUARANTINE}
    others = [
        path.name for path in folder.glob("*") if path.name not in known and not path.name.startswith(("part-", "."))
    ]
    if others:
        raise ValueError(f"{folder} has other files ({sorted(others)[0]}): choose a new or an empty folder")


def begin(folder: Path, begun: Mapping[str, Any]) -> bool:
    """Whether there is something to do. A folder with scores of something else is refused."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
    place = folder / BEGUN
    wanted = json.loads(json.dumps(begun))
    for path in (folder / META, place):
        if not path.is_file():
            continue
        there = read_begun(path)
        other = [name for name in wanted if _essence(name, there.get(name)) != _essence(name, wanted[name])]
        if other and (path.name == META or any(folder.glob("part-*.parquet"))):
            raise ValueError(OTHER.format(folder, _named(other[0], there, wanted)))
        if path.name == META:
            place.unlink(missing_ok=True)  # killed at the very end
            return False
        if not other:
            return True
    with written(place) as file:
        file.write(json.dumps(wanted, indent=1) + "\n")
    return True


def read_begun(path: Path) -> dict[str, Any]:
    """What a table was begun with, or finished."""
    remedy = "remove the folder, or choose another"
    there = read_object(path.read_bytes(), path, remedy)
    if not isinstance(there.get("threads"), int):
        raise DataError(f"{path}: damaged (no number of threads); {remedy}")
    return there


def require_same(folder: Path, reading: Reading, settings: Settings) -> None:
    """A finished table must be that of this corpus, not only of one that looks alike."""
    hashes = (items_digest(chunk.items) for chunk in chunks(reading.items(settings), settings))
    if (reading.digest() or joint_digest(hashes)) != Scores.open(folder).meta["corpus"]["sha256"]:
        raise ValueError(OTHER.format(folder, "corpus"))


def _essence(name: str, value: Any) -> Any:
    """Without places: a folder may be moved, and the bytes of a corpus are compared part by part."""
    if name == "threads":
        return None
    ignored = {"model": ("path",), "corpus": ("path", "pair", "sha256")}.get(name, ())
    return {k: v for k, v in value.items() if k not in ignored} if isinstance(value, Mapping) else value


def _named(name: str, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Of the settings, the first that differs."""
    before, now = there.get(name), wanted[name]
    if name != "settings" or not isinstance(before, Mapping):
        return name
    other = next((key for key in now if before.get(key) != now[key]), name)
    return OPTIONS.get(other, other)


def about(path: Path) -> dict[str, Any]:
    """What a part says about itself."""
    remedy = "remove this file and run again"
    try:
        said = pq.read_schema(path).metadata[FOUND]
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); {remedy}") from error
    return read_object(said, path, remedy)


def finish(folder: Path, reading: Reading, before: str | None, count: int, meta: dict[str, Any]) -> None:
    """Count what the parts hold, and say so: then the table is complete.

    Args:
        before: The digest of the corpus when its reading began.
        count: How many parts it has.
    """
    if reading.digest() != before:  # which records are whose, nobody knows
        raise DataError(
            f"{reading.name}: it changed while it was scored; remove {folder} and score again, or choose another output"
        )
    parts = parts_in(folder, count)
    if missing := [part for part in parts if not part.is_file()]:
        raise DataError(f"{missing[0]}: removed while the corpus was scored; run it again, it goes on")
    counts, reasons = Counter[str](), Counter[str]()
    hashes = []
    with written(folder / QUARANTINE) as file:
        for part in parts:
            found = about(part)
            hashes.append(found["sha256"])
            counts.update(used=pq.read_metadata(part).num_rows, tokens=found["tokens"], words=found["words"])
            for problem in found["problems"]:
                reasons[problem["reason"].partition(" (")[0]] += 1
                file.write(json.dumps(problem, ensure_ascii=False) + "\n")
    if not reasons:
        (folder / QUARANTINE).unlink()
    if not counts["used"]:
        for path in (*parts, folder / BEGUN):  # nothing is lost, and a better command may have the folder
            path.unlink()
        first = next(iter(reasons), "it is empty")
        raise DataError(f"{reading.name}: no record can be used ({first}); check the format and the fields' names")
    meta["corpus"] |= {"sha256": before or joint_digest(hashes)}
    meta |= {
        "records": counts["used"] + reasons.total(),
        "used": counts["used"],
        "quarantined": reasons.total(),
        "reasons": dict(reasons),
        "tokens": counts["tokens"],
        "words": counts["words"],
        "parts": count,
    }
    with written(folder / META) as file:
        file.write(json.dumps(meta, indent=1, ensure_ascii=False) + "\n")
    (folder / BEGUN).unlink(missing_ok=True)
    sync(folder)
