"""Two runs at a time, each in a process and on a core of its own: faster than one run on two cores."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data.files import written
from ..data.lines import DataError
from ..training import configfile
from ..training.config import Source, TrainConfig
from ..training.rundir import RunDir, read_rows

GREEDY = "greedy.json"
POLL = 0.25  # seconds
KINDS = (DataError, FloatingPointError, MemoryError)  # whose fault it is not


def train_all(configs: list[TrainConfig], tell: Callable[[str], None]) -> None:
    """Train and evaluate; the results are in the run directories."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    failures: Any = context.SimpleQueue()  # not files: the disk may be full
    count = min(len(configs), max(1, _cores()))
    for config in configs:
        queue.put(configfile.dump(config))
    for _ in range(count):
        queue.put(None)
    threads = max(1, _cores() // count)
    workers = [context.Process(target=_work, args=(queue, failures, threads), daemon=True) for _ in range(count)]
    try:
        for worker in workers:
            worker.start()
        began = time.monotonic()
        while any(worker.is_alive() for worker in workers) and failures.empty():
            tell(_state(configs, time.monotonic() - began))
            time.sleep(POLL)
        if not failures.empty():
            raise failures.get()
    finally:
        for worker in workers:
            worker.kill() if worker.pid else None
    for config in configs:
        if not (config.output / GREEDY).is_file():
            raise RuntimeError(f"the process that trained {config.method} died; is there enough memory?")


def _work(queue: Any, failures: Any, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is asked, and ends this one
    import torch

    torch.set_num_threads(threads)
    from tempfile import NamedTemporaryFile

    while (text := queue.get()) is not None:
        with NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            config = configfile.load(Path(file.name))
        try:
            _one(config)
        except Exception as error:
            failures.put(_sendable(error, config.method))


def _sendable(error: Exception, method: str) -> Exception:
    if isinstance(error, OSError):  # it has more than a text
        return error
    text = f"{method}: {error}"
    kind = next((kind for kind in KINDS if isinstance(error, kind)), None)
    return RuntimeError(f"{type(error).__name__}: {text}") if kind is None else kind(text)


def _one(config: TrainConfig) -> None:
    from ..training import use
    from ..training.run import train

    began = time.monotonic()
    train(config, command=["errornorm", "demo"])
    test = config.data.test[0]
    row, verdict = use.evaluate(
        config.output, Source(path=test.path), metrics=["bleu", "copies"], beams=1, max_new_tokens=80
    )
    row |= {"seconds": time.monotonic() - began, "outputs": [line["output"] for line in verdict.outputs]}
    with written(config.output / GREEDY) as file:
        json.dump(row, file, ensure_ascii=False)


def _state(configs: list[TrainConfig], seconds: float) -> str:
    """How far everyone is, and how long it will take."""
    steps, parts = 0, []
    for config in configs:
        run = RunDir(config.output)
        rows = read_rows(run.timing) if run.timing.is_file() else []
        done = rows[-1]["step"] if rows else 0
        steps += done
        if run.path.is_dir() and not (run.path / GREEDY).is_file():
            parts.append(f"{config.method.partition('(')[0]} {done} of {config.training.steps}")
    total = sum(config.training.steps for config in configs)
    left = f", {seconds / steps * (total - steps):.0f} s left" if steps > total * 0.02 else ""
    if steps == total and not parts:
        return "the last evaluation"
    return f"training {' and '.join(parts) or 'begins'}{left}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
