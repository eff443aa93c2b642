"""Score a corpus: part by part, so that a run that was killed goes on where it was, to the same bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .._version import __version__
from ..data.files import written
from ..data.lines import DataError
from ..training.disk import room_for, sync
from ..training.locks import Lock
from ..training.rundir import versions
from ..training.stops import at_once
from .corpus import Reading
from .judge import Judge
from .parts import FOUND, Chunk, Scorer, Settings, chunks, items_digest, joint_digest
from .table import CUTOFF, META, PART, QUARANTINE, VERSION, Scores, write_part

BEGUN = "begun.json"  # what the parts of an unfinished table were made from
GO_ON = "; the same command goes on with it"
OTHER = "{} has scores with another {}: remove it, or choose another output"
Tell = Callable[["Progress"], None]
Met = Callable[[], None]  # see `at_once`


@dataclass(frozen=True, slots=True)
class Progress:
    """Args:
    records: Read so far.
    tokens: Scored so far, by this process.
    part: Number of the part that is at work.
    """

    records: int
    tokens: int
    part: int


def score(
    corpus: Any,
    model: Path | str,
    output: Path | str | None = None,
    *,
    text_field: str | None = None,
    context_field: str | None = None,
    prompt: str | None = None,
    cutoff: float = CUTOFF,
    alternatives: int = 5,
    max_length: int | None = None,
    to: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    limit: int | None = None,
    part: int = 1000,
    tokens: int = 4096,
    engine: str = "local",
    workers: int = 0,
    command: Sequence[str] = (),
    tell: Tell = lambda progress: None,
) -> Scores | pa.Table:
    """Score every token of a corpus with a model.

    Args:
        corpus: A file; the entries of a corpus as in a training configuration ({"path": "a.en", "pair": "a.fr"}); or
            rows: a pyarrow table, a pandas data frame, a list of mappings.
        model: A run directory, or a folder with a model of transformers.
        output: Folder of the table. None: it is returned, and nothing is written.
        text_field: Field that is scored: "target", or "text" if there is nothing before it.
        context_field: Field that the model reads before: "source" for an encoder-decoder, else none.
        prompt: Instead of it, a text with fields in braces: "{document}\\n\\nTL;DR: ".
        cutoff: Above this error norm a token gets its rank and the model's own choices.
        alternatives: How many of those.
        max_length: Most tokens that the model reads at once. Longer texts are read in windows by a causal model.
        to: Target language of a multilingual model.
        device: Such as "cuda".
        dtype: Of the model: float32, float64, bfloat16 or float16.
        limit: Score so many records.
        part: Records of a part; a process that is killed loses what it did of one.
        tokens: Of a batch, padding included.
        engine: "local", or "ray": it scores parts in several processes, on one machine or many.
        workers: Of the engine ray; 0: as many as there are processors or GPUs.
        command: For the record.
        tell: Called with `Progress`, now and then.

    Returns:
        The finished table, on disk or in memory.
    """
    if engine not in ("local", "ray"):
        raise ValueError(f"unknown engine {engine!r}; there are local and ray")
    if prompt is not None and context_field is not None:
        raise ValueError("give prompt or context_field, not both")
    reading, judge = Reading(corpus, limit), Judge(str(model), max_length, to, device, dtype)

    def settings(causal: bool) -> Settings:
        name = context_field or ("source" if not causal or reading.paired else "")
        context = prompt if prompt is not None else f"{{{name}}}" if name else ""
        return Settings(text_field or ("target" if context else "text"), context, cutoff, alternatives, part, tokens)

    def into(folder: Path) -> Scores:
        return _score(reading, judge, settings, folder, workers if engine == "ray" else None, command, tell)

    if output is not None:
        return into(Path(output))
    with TemporaryDirectory() as place:
        return into(Path(place) / "scores").table()


def _score(
    reading: Reading,
    judge: Judge,
    choose: Callable[[bool], Settings],
    folder: Path,
    workers: int | None,
    command: Sequence[str],
    tell: Tell,
) -> Scores:
    _refuse_foreign(folder)
    with at_once(GO_ON) as met:
        saved = judge.load()
        settings = choose(not saved.model.config.is_encoder_decoder)
        begun = {
            "schema": VERSION,
            "errornorm": __version__,
            "model": judge.about(saved),
            "corpus": reading.about(settings),
            "settings": asdict(settings) | judge.settings,
        }
        folder.mkdir(parents=True, exist_ok=True)
        with Lock(folder).held(), room_for(folder):
            if _begin(folder, begun):
                scorer = judge.scorer(saved, settings)
                work = _local(scorer) if workers is None else _ray(judge, settings, workers)
                _fill(folder, reading, settings, work, met, tell)
                _finish(folder, reading, begun | {"command": list(command), "versions": versions()})
            else:
                _require_same(folder, reading, settings)
    return Scores.open(folder)


Work = Callable[[Iterator[Chunk], Path, Callable[[int], None]], None]


def _local(scorer: Scorer) -> Work:
    def work(todo: Iterator[Chunk], folder: Path, tell: Callable[[int], None]) -> None:
        for chunk in todo:
            write_part(folder / PART.format(chunk.number), scorer(chunk, tell))

    return work


def _ray(judge: Judge, settings: Settings, workers: int) -> Work:
    from .cluster import spread

    return lambda todo, folder, tell: spread(judge, settings, todo, folder, tell, workers)


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: choose another output")
    known = {META, BEGUN, QUARANTINE}
    others = [
        path.name for path in folder.glob("*") if path.name not in known and not path.name.startswith(("part-", "."))
    ]
    if others:
        raise ValueError(f"{folder} has other files ({sorted(others)[0]}): choose a new or an empty folder")


def _begin(folder: Path, begun: Mapping[str, Any]) -> bool:
    """Whether there is something to do. A folder with scores of something else is refused."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
    place = folder / BEGUN
    wanted = json.loads(json.dumps(begun))
    for path in (folder / META, place):
        if not path.is_file():
            continue
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
            other = [name for name in wanted if _essence(name, there.get(name)) != _essence(name, wanted[name])]
        except (ValueError, AttributeError) as error:
            raise DataError(f"{path}: damaged ({error}); remove the folder, or choose another") from error
        if other and (path.name == META or any(folder.glob("part-*.parquet"))):
            raise ValueError(OTHER.format(folder, other[0]))
        if path.name == META:
            return False
    with written(place) as file:
        file.write(json.dumps(wanted, indent=1) + "\n")
    return True


def _require_same(folder: Path, reading: Reading, settings: Settings) -> None:
    """A finished table must be that of this corpus, not only of one that looks alike."""
    hashes = (items_digest(chunk.items) for chunk in chunks(reading.items(settings), settings))
    if (reading.digest() or joint_digest(hashes)) != Scores.open(folder).meta["corpus"]["sha256"]:
        raise ValueError(OTHER.format(folder, "corpus"))


def _essence(name: str, value: Any) -> Any:
    """Without places: a folder may be moved, and the bytes of a corpus are compared part by part."""
    ignored = {"model": ("path",), "corpus": ("path", "pair", "sha256")}.get(name, ())
    return {k: v for k, v in value.items() if k not in ignored} if isinstance(value, Mapping) else value


def _fill(folder: Path, reading: Reading, settings: Settings, work: Work, met: Met, tell: Tell) -> None:
    """Make the parts that are missing."""
    seen = {"records": 0, "tokens": 0, "part": 0}

    def todo() -> Iterator[Chunk]:
        for chunk in chunks(reading.items(settings), settings):
            seen["records"], seen["part"] = chunk.first + len(chunk.items), chunk.number
            path = folder / PART.format(chunk.number)
            if not path.is_file():
                yield chunk
            elif about(path).get("sha256") != items_digest(chunk.items):
                raise DataError(
                    f"{reading.name}: records {chunk.first + 1} to {seen['records']} are not those that {path} "
                    "was made from; remove the folder, or choose another output"
                )
        for path in folder.glob("part-*.parquet"):  # the corpus became shorter
            if path.name > PART.format(seen["part"]):
                raise DataError(f"{reading.name}: shorter than what {path} was made from; choose another output")

    def done(tokens: int) -> None:
        met()
        seen["tokens"] += tokens
        tell(Progress(**seen))

    work(todo(), folder, done)
    sync(folder)


def about(path: Path) -> dict[str, Any]:
    """What a part says about itself."""
    try:
        found: dict[str, Any] = json.loads(pq.read_schema(path).metadata[FOUND])
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); remove this file and run again") from error
    return found


def _finish(folder: Path, reading: Reading, meta: dict[str, Any]) -> None:
    parts = sorted(folder.glob("part-*.parquet"))
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
    meta["corpus"] |= {"sha256": reading.digest() or joint_digest(hashes)}
    meta |= {
        "records": counts["used"] + reasons.total(),
        "used": counts["used"],
        "quarantined": reasons.total(),
        "reasons": dict(reasons),
        "tokens": counts["tokens"],
        "words": counts["words"],
        "parts": len(parts),
    }
    with written(folder / META) as file:
        file.write(json.dumps(meta, indent=1, ensure_ascii=False) + "\n")
    (folder / BEGUN).unlink(missing_ok=True)
    sync(folder)
