"""What a cell does: plain functions from a cell to the numbers of its row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from errornorm.training import use
from errornorm.training.config import Checkpoints, Source, TrainConfig
from errornorm.training.run import is_main, train
from errornorm.training.rundir import RunDir, read_rows

from . import corpora, highlights, illustration, measures
from .cells import Cell, canonical, merged

LOCK = ".cell.lock"
POINTS = 60  # of a curve
COLUMNS = ("step", "nll", "kept", "error_norm_top10")
OWN = ("prune", "labels", "level", "score")  # settings of cells that build on another one
CAUSAL = "language-modeling"


@dataclass(frozen=True)
class Place:
    """Where runs and their corpora lie.

    Args:
        work: Everything that may be removed when the rows are there.
        data: Local corpora, for the scale that needs them.
    """

    work: Path
    data: Path | None = None

    def folder(self, cell: Cell) -> Path:
        return self.work / "cells" / cell.hash

    def lock(self, cell: Cell) -> FileLock:
        self.folder(cell).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder(cell) / LOCK, thread_local=False)


def configured(cell: Cell, place: Place, train_path: Path | None = None) -> TrainConfig:
    """The training configuration of a cell; `errornorm train` does the same with it."""
    told = cell.told
    found = corpora.sources(cell, place.work, place.data)
    learnt = [{"path": str(train_path)}] if train_path else found["train"]
    more = {"text_field": "target"} if train_path and told["task"] == CAUSAL else {}
    steps = told["training"]["steps"]
    sections = {name: told[name] for name in ("model", "tokenizer", "training", "evaluation", "logging")}
    if "pretrain" in told:
        sections |= {"model": {"pretrained": str(finished(before(cell), place).model)}, "tokenizer": {}}
    return TrainConfig.model_validate(
        {
            "task": told["task"],
            "output": place.folder(cell) / "run",
            "objective": cell.objective,
            "seeds": [cell.seed],
            "data": {
                "train": [_source(part | more) for part in learnt],
                "test": [_source(part) for part in found[cell.split]],
                "max_length": told["max_length"],
                "temperature": told.get("temperature", 1.0),
                "prefix": told.get("prefix", ""),
            },
            **sections,
            "checkpoints": Checkpoints(every=max(1, min(steps, 2000)), keep=1),
        }
    )


def _source(part: dict[str, Any]) -> Source:
    return Source(**part | {"path": Path(part["path"])})


def trained(cell: Cell, place: Place, train_path: Path | None = None) -> dict[str, Any]:
    """Learn and measure."""
    config = configured(cell, place, train_path)
    run = RunDir(config.output)
    train(config, resume=run.has_run, command=["errornorm", "reproduce", cell.item, "--scale", cell.scale])
    if not is_main():
        return {}
    found = measures.of_run(run, config)
    rows = [row for row in read_rows(run.metrics) if row["split"] == "train"]
    every = max(1, -(-len(rows) // POINTS))
    if "pretrain" in cell.told:
        found["before"] = measures.stated(RunDir(place.folder(before(cell)) / "run"))
    found["curve"] = [[_short(row.get(name)) for name in COLUMNS] for row in rows[::every]]
    for folder in (run.checkpoints, run.data):  # the model stays: other cells may score with it
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _short(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def base_of(cell: Cell) -> Cell:
    """The run by likelihood on the same corpus that a cell builds on; a table may have it too."""
    told = {name: value for name, value in cell.told.items() if name not in OWN}
    return cell.but(do="train", objective="mle", code="", seed=0, split="test", settings=canonical(told))


def before(cell: Cell) -> Cell:
    """The run that a cell fine-tunes the model of: likelihood on another corpus."""
    told = cell.told
    changes = told.pop("pretrain")
    return cell.but(
        do="train", objective="mle", code="", noise=(), seed=0, split="test", settings=canonical(merged(told, changes))
    )


def finished(base: Cell, place: Place) -> RunDir:
    """The run of a cell that another one builds on; it is done now if it was not."""
    run = RunDir(place.folder(base) / "run")
    with place.lock(base):
        if not run.evaluation.is_file():
            trained(base, place)
    return run


def scored(cell: Cell, place: Place) -> Path:
    """A corpus under the base's model: the one that it learnt from, or the one that is asked for."""
    from errornorm.scoring.run import score

    base, other = base_of(cell), cell.told.get("score")
    run = finished(base, place)
    asked = base.but(settings={"recipe": other}) if other else base
    (corpus, *_) = corpora.sources(asked, place.work, place.data)["train"]
    folder = place.folder(asked) / "scores"
    with place.lock(asked):
        score(corpus["path"], run.path, folder)
    return folder


def pruned(cell: Cell, place: Place) -> dict[str, Any]:
    """Learn from what is left of the corpus, for as many steps."""
    from errornorm.curation.prune import prune

    asked, rest = cell.told["prune"], place.folder(cell) / "rest.jsonl"
    done = prune(scored(cell, place), by=asked["by"], fraction=asked["fraction"], seed=cell.seed, output=rest)
    return trained(cell, place, rest) | {"pruned": {"records": done.records, "kept": done.kept}}


def separated(cell: Cell, place: Place) -> dict[str, Any]:
    """How well loss and error norm tell the words that were made wrong."""
    from errornorm.curation.detect import detect

    found = detect(scored(cell, place), cell.told["labels"], level=cell.told.get("level", "token"), bootstrap=200)
    rows = [row for row in found.rows if row["group"] is None]
    return {
        "measures": {f"{row['score']}_{name}": row[name] for row in rows for name in ("auroc", "overlap")},
        "detection": rows,
        "histograms": found.histograms,
    }


def highlighted(cell: Cell, place: Place) -> dict[str, Any]:
    """Sentences of the training corpus with the error norm of each token."""
    base = base_of(cell)
    run = finished(base, place)
    (corpus, *_) = corpora.sources(base, place.work, place.data)["train"]
    return {"measures": {}, "sentences_shown": highlights.sentences(use.load(run.path), Path(corpus["path"]))}


def illustrated(cell: Cell, place: Place) -> dict[str, Any]:
    """The paper's three distributions, through the library's own arithmetic."""
    return {"measures": {}, "distributions": illustration.distributions()}


DOES: dict[str, Callable[[Cell, Place], dict[str, Any]]] = {
    "train": trained,
    "prune": pruned,
    "separate": separated,
    "highlight": highlighted,
    "illustrate": illustrated,
}
