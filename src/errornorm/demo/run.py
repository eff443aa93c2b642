"""The demo from beginning to end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..data.files import require_utf8, written
from ..data.lines import DataError
from ..evaluation.metrics import copies
from ..training.locks import Lock
from ..training.rundir import RunDir, read_rows
from .page import render
from .parts import Curve, Page, Row, Sample, Verdict
from .sentences import sentences
from .settings import METHODS, NOISE, Size, Task, config, embedded, own
from .workers import GREEDY, train_all

PAGE, RESULTS = "index.html", "results.json"
MARK = ".errornorm-demo"  # its folder is ours to empty


@dataclass(frozen=True, slots=True)
class Demo:
    """What was measured, and where the page is."""

    rows: list[Row]
    settings: dict[str, str]
    page: Path
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rows]
        return {"rows": rows, "settings": self.settings, "page": str(self.page), "seconds": self.seconds}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows for a terminal."""
        header = ["method", "correct, greedy", "correct, beam 5", "BLEU, greedy", "BLEU, beam 5", "copies, greedy",
                  "copies, beam 5", "seconds"]  # fmt: skip
        out = [
            [
                row.method,
                _share(row.correct_greedy), _share(row.correct_beam),
                f"{row.bleu_greedy:.1f}", f"{row.bleu_beam:.1f}",
                _share(row.copies_greedy), _share(row.copies_beam),
                f"{row.seconds:.0f}",
            ]
            for row in self.rows
        ]  # fmt: skip
        if self.rows[0].correct_beam is None:
            return [header[0], *header[3:]], [[row[0], *row[3:]] for row in out]
        return header, out


def run(
    output: Path,
    *,
    source: Path | None = None,
    target: Path | None = None,
    seed: int = 0,
    size: Size | None = None,
    methods: list[str] | None = None,
    command: str = "errornorm demo",
    tell: Callable[[str], None] = lambda text: None,
) -> Demo:
    """Train by every method on text full of copies, evaluate, and write a page.

    Args:
        output: A folder; an earlier demo in it is replaced.
        source: A text file, with `target`: the user's own data instead of the grammar's.
        target: Its translation, line by line.
        seed: Of everything.
        size: How much to train.
        methods: Some of METHODS; all if not given.
        command: For the page.
        tell: Called with what is going on.
    """
    began = time.monotonic()
    for path in filter(None, (source, target)):
        if not path.exists():
            raise DataError(f"{path}: no such file; check the name")
    require_utf8(output)
    with _begun(output):
        options = {} if size is None else {"size": size}
        if source is None or target is None:
            task = embedded(output, seed, **options)
        else:
            task = own(output, source, target, seed, **options)
        labels = methods or list(METHODS)
        configs = [config(task, label, seed) for label in labels]
        train_all(configs, tell)
        tell("writing the page")
        runs = {label: RunDir(c.output) for label, c in zip(labels, configs, strict=True)}
        tests = read_rows(task.test)
        rows = [_row(label, run, task) for label, run in runs.items()]
        settings = _settings(task, next(iter(runs.values())), seed)
        shown = "ENT" if "ENT" in runs else labels[-1]
        seconds = time.monotonic() - began
        page = Page(
            "Copies in the training data",
            rows,
            [_curve(label, run) for label, run in runs.items()],
            _samples(runs, tests, task),
            sentences(runs[shown], task.train),
            settings,
            command,
            seconds,
        )
        with written(output / PAGE) as file:
            file.write(render(page))
        done = Demo(rows, settings, output / PAGE, seconds)
        with written(output / RESULTS) as file:
            json.dump(done.as_dict(), file, indent=2, ensure_ascii=False)
        return done


@contextmanager
def _begun(output: Path) -> Iterator[None]:
    """The folder, locked. An earlier demo in it is removed, and nothing else."""
    lock = Lock(output)
    ours = {PAGE, RESULTS, "train.jsonl", "test.jsonl", "quarantine.jsonl", "runs"}
    there = {path.name for path in output.iterdir()} if output.exists() else set()
    others = there - ours - {MARK, lock.file.name, lock.owner.name} if MARK in there else there
    if others:
        raise ValueError(f"{output} has other files ({min(others)}): choose another folder")
    output.mkdir(parents=True, exist_ok=True)
    (output / MARK).touch()
    with lock.held():
        for path in (output / name for name in ours):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        yield


def _row(label: str, run: RunDir, task: Task) -> Row:
    beam = json.loads(run.evaluation.read_text(encoding="utf-8"))
    greedy = json.loads((run.path / GREEDY).read_text(encoding="utf-8"))
    found = [line["output"] for line in read_rows(run.outputs("test"))]
    return Row(
        method=label,
        spec=beam["method"],
        correct_greedy=_correct(task, greedy["outputs"]),
        correct_beam=_correct(task, found),
        bleu_greedy=greedy["bleu"],
        bleu_beam=beam["bleu"],
        copies_greedy=greedy["copies"],
        copies_beam=beam["copies"],
        seconds=greedy["seconds"],
    )


def _correct(task: Task, outputs: list[str]) -> float | None:
    if task.captions is None:
        return None
    return sum(c.is_translated_by(o) for c, o in zip(task.captions, outputs, strict=True)) / len(outputs)


def _curve(label: str, run: RunDir) -> Curve:
    rows = [row for row in read_rows(run.metrics) if row["split"] == "train"]
    columns = [[row[name] for row in rows] for name in ("step", "nll", "kept", "error_norm_top10")]
    return Curve(label, *columns)


def _samples(runs: dict[str, RunDir], tests: list[dict[str, str]], task: Task) -> list[Sample]:
    """First those where the methods disagree."""
    outputs = {label: [line["output"] for line in read_rows(run.outputs("test"))] for label, run in runs.items()}
    out = []
    for i, test in enumerate(tests):
        texts = {label: column[i] for label, column in outputs.items()}
        verdicts = {label: _verdict(task, i, test["source"], text) for label, text in texts.items()}
        out.append(Sample(test["source"], test["target"], texts, verdicts))
    return sorted(out, key=lambda sample: -len(set(sample.verdicts.values())))


def _verdict(task: Task, index: int, source: str, output: str) -> Verdict:
    if task.captions is not None and task.captions[index].is_translated_by(output):
        return "correct"
    if copies(output, source):
        return "copy"
    return "other" if task.captions is None else "wrong"


def _settings(task: Task, run: RunDir, seed: int) -> dict[str, str]:
    about = json.loads(run.manifest.read_text(encoding="utf-8"))
    beam = json.loads(run.evaluation.read_text(encoding="utf-8"))
    train = next(entry for entry in about["data"] if entry["split"] == "train")
    return {
        "Training pairs": f"{train['used']:,}, of which {NOISE / (1 + NOISE):.0%} are untranslated copies",
        "Test sentences": str(beam["num"]),
        "Records": f"{task.records:,} read, {task.quarantined:,} quarantined",
        "Model": f"{about['parameters']:,} parameters, {task.size.steps} steps of {task.size.tokens} tokens",
        "Beams": str(beam["beams"]),
        "Seed": str(seed),
        "BLEU signature": beam["signatures"]["bleu"],
        "Data hash": about["data_hash"][:16],
        "Version": f"errornorm {__version__}, torch {about['versions']['torch']}",
    }


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
