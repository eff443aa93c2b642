"""What a cell does: plain functions from a cell to the numbers of its row."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from errornorm.data.noise import CLEAN
from errornorm.training import use
from errornorm.training.config import Checkpoints, Source, TrainConfig
from errornorm.training.run import is_main, train
from errornorm.training.rundir import RunDir, read_rows
from errornorm.training.together import together, told

from . import corpora, highlights, hub, illustration, measures
from .cells import Cell, canonical, merged
from .recipe import DIRECTION

LOCK = ".cell.lock"
POINTS = 60  # of a curve
SOME = 1000  # texts whose openings are shown
COLUMNS = ("step", "nll", "kept", "error_norm_top10")
OWN = ("prune", "labels", "level", "score", "texts", "unlearnt")  # settings of cells that build on another one
Parts = Sequence[Mapping[str, Any]]  # corpora as in a training configuration


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

    def run(self, cell: Cell) -> RunDir:
        return RunDir(self.folder(cell) / "run")

    def lock(self, cell: Cell) -> FileLock:
        self.folder(cell).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder(cell) / LOCK, thread_local=False)


def configured(cell: Cell, place: Place, learnt: Parts | None = None) -> TrainConfig:
    """The training configuration of a cell; `errornorm train` does the same with it."""
    asked = cell.told
    found = corpora.sources(cell, place.work, place.data)
    steps = asked["training"]["steps"]
    sections = {name: asked[name] for name in ("model", "tokenizer", "training", "logging")}
    if "pretrain" in asked:
        sections |= {"model": {"pretrained": str(finished(before(cell), place).model)}, "tokenizer": {}}
    return TrainConfig.model_validate(
        {
            "task": asked["task"],
            "output": place.run(cell).path,
            "objective": cell.objective,
            "seeds": [cell.seed],
            "data": {
                "train": [_source(part) for part in learnt or found["train"]],
                "test": [_source(part) for part in found[cell.split]],
                "max_length": asked["max_length"],
                "temperature": asked.get("temperature", 1.0),
                "prefix": asked.get("prefix", ""),
            },
            **sections,
            "evaluation": hub.evaluation(asked["evaluation"], place.work, place.data),
            "checkpoints": Checkpoints(every=max(1, min(steps, 2000)), keep=1),
        }
    )


def _source(part: Mapping[str, Any]) -> Source:
    return Source(**{**part, "path": Path(part["path"])})


def trained(cell: Cell, place: Place, learnt: Parts | None = None) -> dict[str, Any]:
    """Learn and measure."""
    config = configured(cell, place, learnt)
    run = RunDir(config.output)
    train(config, resume=run.has_run, command=["errornorm", "reproduce", cell.item, "--scale", cell.scale])
    if not is_main():
        return {}
    found = measures.of_run(run, config)
    rows = [row for row in read_rows(run.metrics) if row["split"] == "train"]
    every = max(1, -(-len(rows) // POINTS))
    if "pretrain" in cell.told:
        found["before"] = measures.stated(place.run(before(cell)))
    found["curve"] = [[_short(row.get(name)) for name in COLUMNS] for row in rows[::every]]
    for folder in (run.checkpoints, run.data):  # the model stays: other cells may score with it
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _short(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def base_of(cell: Cell) -> Cell:
    """The run by likelihood on the same corpus that a cell builds on; a table may have it too."""
    return cell.but(do="train", objective="mle", code="", seed=0, split="test", settings=canonical(_shared(cell)))


def _shared(cell: Cell) -> dict[str, Any]:
    """Its settings, but for those that say what it does with a model that is there."""
    return {name: value for name, value in cell.told.items() if name not in OWN}


def before(cell: Cell) -> Cell:
    """The run that a cell fine-tunes the model of: likelihood on another corpus."""
    shared = _shared(cell)
    changes = shared.pop("pretrain")
    settings = canonical(merged(shared, changes))
    return cell.but(do="train", objective="mle", code="", noise=(), seed=0, split="test", settings=settings)


def finished(base: Cell, place: Place) -> RunDir:
    """The run of a cell that another one builds on; it is done now if it was not."""
    run = place.run(base)
    with _alone(base, place):
        if told(not run.evaluation.is_file()):
            trained(base, place)
    return run


@contextmanager
def _alone(base: Cell, place: Place) -> Iterator[None]:
    """No other cell is at the base meanwhile. Of several ranks, the first one has the lock for all."""
    lock = place.lock(base)
    with together():
        if is_main():
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def scored(cell: Cell, place: Place) -> list[tuple[dict[str, Any], Path]]:
    """A corpus under the base's model, the one that it learnt from or the one that is asked for: each file of it, and
    the folder of its scores. With "unlearnt", the model learnt from the corpus without its noise."""
    from errornorm.scoring.run import score

    base, other, unlearnt = base_of(cell), cell.told.get("score"), cell.told.get("unlearnt")
    run = finished(base.but(noise=()) if unlearnt else base, place)
    asked, out = base.but(settings={"recipe": other}) if other else base, []
    limit = cell.told.get("texts")
    for part in corpora.sources(asked, place.work, place.data)["train"]:
        words = ("scores", part.get(DIRECTION), limit, "unlearnt" if unlearnt else None)
        name = "-".join(str(word) for word in words if word)
        out.append((part, place.folder(asked) / name))
    with _alone(asked, place), together():
        for part, folder in out if is_main() else []:
            language = part.get(DIRECTION)
            score(part["path"], run.path, folder, to=language.split("-")[1] if language else None, limit=limit)
    return out


def pruned(cell: Cell, place: Place) -> dict[str, Any]:
    """Learn from what is left of the corpus, for as many steps."""
    from errornorm.curation.prune import prune

    asked, rest, count = cell.told["prune"], [], {"records": 0, "kept": 0}
    found = scored(cell, place)
    with together():
        for number, (part, scores) in enumerate(found):
            path = place.folder(cell) / (f"rest-{number}.jsonl" if len(found) > 1 else "rest.jsonl")
            rest.append(part | {"path": str(path)})
            if is_main():
                done = prune(scores, by=asked["by"], fraction=asked["fraction"], seed=cell.seed, output=path)
                count = {"records": count["records"] + done.records, "kept": count["kept"] + done.kept}
    return trained(cell, place, rest) | {"pruned": count}


def separated(cell: Cell, place: Place) -> dict[str, Any]:
    """How well loss and error norm tell the words that were made wrong."""
    from errornorm.curation.detect import detect

    (_, scores), *others = scored(cell, place)
    assert not others
    if not is_main():
        return {}
    found = detect(scores, cell.told["labels"], level=cell.told.get("level", "token"), bootstrap=200)
    rows = [row for row in found.rows if row["group"] is None]
    return {
        "measures": {f"{row['score']}_{name}": row[name] for row in rows for name in ("auroc", "overlap")},
        "detection": rows,
        "histograms": found.histograms,
    }


def estimated(cell: Cell, place: Place) -> dict[str, Any]:
    """How much noise the scores show, how much there is, and where the openings of some texts lie."""
    from errornorm.curation import advice, noise_rate
    from errornorm.scoring.table import Scores

    (_, folder), *others = scored(cell, place)
    assert not others
    if not is_main():
        return {}
    scores = Scores.open(folder)
    found = noise_rate.estimate(scores)
    sample, _ = noise_rate.read(scores)
    fields = map(json.loads, scores.table(["fields"])["fields"].to_pylist())
    noisy = [int(of.get("noise", CLEAN) != CLEAN) for of in fields]
    places = list(zip(sample.openings.tolist(), sample.hard.tolist(), noisy, strict=True))
    known = {} if found.rate is None else {"rate": found.rate}
    return {
        "measures": {"truth": sum(noisy) / len(noisy), "learnt": found.learnt or 0.0} | known,
        "estimate": found.as_dict(),
        "said": advice.describe(found),
        "openings": [[_short(norm), _short(hard), bad] for norm, hard, bad in places[:: -(-len(places) // SOME)]],
    }


def highlighted(cell: Cell, place: Place) -> dict[str, Any]:
    """Sentences of the training corpus with the error norm of each token."""
    base = base_of(cell)
    run = finished(base, place)
    if not is_main():
        return {}
    parts = corpora.sources(base, place.work, place.data)["train"]
    return {"measures": {}, "sentences_shown": highlights.sentences(use.load(run.path), parts)}


def illustrated(cell: Cell, place: Place) -> dict[str, Any]:
    """The paper's three distributions, through the library's own arithmetic."""
    return {"measures": {}, "distributions": illustration.distributions()}


DOES: dict[str, Callable[[Cell, Place], dict[str, Any]]] = {
    "train": trained,
    "prune": pruned,
    "separate": separated,
    "estimate": estimated,
    "highlight": highlighted,
    "illustrate": illustrated,
}
