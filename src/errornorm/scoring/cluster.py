"""Parts of a corpus, scored by many processes on one machine or several, through Ray Data.

The parts wait as JSONL beside the table, since Ray wants to know what there is to do; a worker reads one, scores it and
writes its Parquet file. So the folder must be one that all machines see.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data.files import written
from ..data.lines import Problem, Where
from ..data.records import Record
from .judge import Judge
from .parts import Chunk, Settings
from .table import PART, write_part

STAGE = ".waiting"


def spread(
    judge: Judge, settings: Settings, todo: Iterable[Chunk], folder: Path, tell: Callable[[int], None], workers: int
) -> None:
    """Score chunks in workers (0: one for each processor, or for each GPU if there are any)."""
    ray = _ray()
    folder = folder.absolute()  # workers may stand elsewhere
    stage, model = folder / STAGE, str(Path(judge.folder).absolute())
    try:
        waiting = [
            {"stage": str(_put(stage, chunk)), "part": str(folder / PART.format(chunk.number))} for chunk in todo
        ]
        if not waiting:
            return
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        have = ray.cluster_resources()
        gpus, cpus = int(have.get("GPU", 0)), int(have.get("CPU", 1))
        count = min(workers or gpus or cpus, len(waiting))
        done = ray.data.from_items(waiting, override_num_blocks=len(waiting)).map_batches(
            Worker,
            fn_constructor_args=(asdict(judge) | {"folder": model}, asdict(settings), max(1, cpus // count)),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=count),
            num_gpus=1 if gpus else 0,
        )
        for row in done.iter_rows():
            tell(int(row["tokens"]))
    finally:
        shutil.rmtree(stage, ignore_errors=True)


class Worker:
    """Loads the model once, then scores part after part."""

    def __init__(self, judge: dict[str, Any], settings: dict[str, Any], threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        made = Judge(**judge)
        self.scorer = made.scorer(made.load(), Settings(**settings))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        counts = []
        for stage, part in zip(batch["stage"], batch["part"], strict=True):
            table = self.scorer(_get(Path(stage)))
            write_part(Path(part), table)
            counts.append(len(table["token"].combine_chunks().values))
        return {"tokens": counts}


def _put(stage: Path, chunk: Chunk) -> Path:
    path = stage / f"{chunk.number}.jsonl"
    with written(path) as file:
        file.write(json.dumps([chunk.number, chunk.first]) + "\n")
        for item in chunk.items:
            what: Any = item.fields if isinstance(item, Record) else [item.reason, item.raw.decode("latin-1")]
            where = item.where
            file.write(json.dumps([where.file, where.line, where.column, what], default=str) + "\n")
    return path


def _get(path: Path) -> Chunk:
    lines: Iterator[Any] = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    number, first = next(lines)
    items: list[Record | Problem] = []
    for file, line, column, what in lines:
        where = Where(file, line, column)
        items.append(
            Record(where, what) if isinstance(what, dict) else Problem(where, what[0], what[1].encode("latin-1"))
        )
    return Chunk(number, first, items)


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError("engine='ray' needs Ray: pip install errornorm[ray]") from error
    return ray
