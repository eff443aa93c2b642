"""Score a corpus: part by part, so that a run that was killed goes on where it was, to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import torch

from .._version import __version__
from ..data.files import require_utf8
from ..data.lines import DataError
from ..threads import on_threads
from ..training.disk import room_for, sync
from ..training.locks import Lock
from ..training.rundir import versions
from ..training.stops import at_once
from .corpus import Reading
from .folder import BEGUN, about, begin, finish, read_begun, refuse_foreign, require_same
from .judge import Judge
from .parts import Chunk, Scorer, Settings, chunks, items_digest
from .table import CUTOFF, PART, VERSION, Scores, number_of, parts_of, write_part

GO_ON = "; the same command goes on with it"
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
    require_utf8(Path(model))
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
    refuse_foreign(folder)
    with at_once(GO_ON) as met:
        saved = judge.load()
        settings = choose(not saved.model.config.is_encoder_decoder)
        begun: dict[str, Any] = {
            "schema": VERSION,
            "errornorm": __version__,
            "model": judge.about(saved),
            "corpus": reading.about(settings),
            "settings": asdict(settings) | judge.settings,
            "threads": torch.get_num_threads(),
        }
        scorer = judge.scorer(saved, settings)
        reading.look(settings)
        folder.mkdir(parents=True, exist_ok=True)
        with Lock(folder).held(), room_for(folder):
            if begin(folder, begun):
                begun["threads"] = read_begun(folder / BEGUN)["threads"]
                before = reading.digest()
                work = _local(scorer) if workers is None else _ray(judge, settings, workers)
                with on_threads(begun["threads"]):  # as the first parts
                    count = _fill(folder, reading, settings, work, met, tell)
                finish(folder, reading, before, count, begun | {"command": list(command), "versions": versions()})
            else:
                require_same(folder, reading, settings)
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


def _fill(folder: Path, reading: Reading, settings: Settings, work: Work, met: Met, tell: Tell) -> int:
    """Make the parts that are missing, and say how many there are."""
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
        for path in parts_of(folder):
            if number_of(path) > seen["part"]:  # the corpus became shorter
                raise DataError(f"{reading.name}: shorter than what {path} was made from; choose another output")

    def done(tokens: int) -> None:
        met()
        seen["tokens"] += tokens
        tell(Progress(**seen))

    work(todo(), folder, done)
    sync(folder)
    return seen["part"] + 1
