"""What a run would take: the data are read, a few steps are taken, and nothing is written to the run directory."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import specs
from ..integrations.trainer import robust
from . import checkpoints, models, prepare
from .batches import Plan
from .config import Checkpoints, Logging, TrainConfig
from .disk import room_for
from .engine import Callback, RunTrainer
from .progress import Progress
from .run import require
from .rundir import RunDir

STEPS, UNTIMED = 6, 2


class _Clock(Callback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.times.append(time.perf_counter())


def estimate(config: TrainConfig, progress: Progress) -> dict[str, Any]:
    """Numbers for `table`, if a run could begin."""
    models.quiet()
    require(config)
    if not (output := RunDir(config.output)).has_run:  # else --resume may go on with it
        output.check(resume=False)
    models.require(config)
    with TemporaryDirectory(prefix="errornorm-") as place, room_for(Path(place)):
        run = RunDir(Path(place))
        with progress.doing("reading the corpus") as tell:
            prepare.prepare(config, run.data, tell)
        prepared = prepare.load(config, run.data)
        model = models.build(config, prepared.tokenizer, config.seeds[0])
        with progress.doing("timing a few steps"):
            seconds = _seconds_per_step(config, prepared, run, model)
        newest = checkpoints.newest(run.checkpoints)
        assert newest is not None
        size = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
        data = sum(path.stat().st_size for path in run.data.rglob("*") if path.is_file())
        plan = Plan(prepared.examples, tokens=config.training.tokens_per_step, steps=1, seed=config.seeds[0])
        epoch = plan.steps_per_epoch()
        return {
            "task": config.task,
            "method": config.method,
            "counts": [
                {"name": x.name, "split": x.split, "records": x.records, "used": x.used} for x in prepared.counts
            ],
            "quarantined": sum(x.quarantined for x in prepared.counts),
            "pruned": sum(x.pruned for x in prepared.counts),
            "parameters": model.num_parameters(),
            "vocabulary": len(prepared.tokenizer),
            "runs": len(config.seeds),
            "steps": config.training.steps,
            "steps_per_epoch": epoch,
            "seconds_per_step": seconds,
            "seconds": seconds * config.training.steps * len(config.seeds),
            "memory_bytes": _peak(),
            "disk_bytes": len(config.seeds) * (data + (config.checkpoints.keep + 2) * size),
        }


def _seconds_per_step(config: TrainConfig, prepared: prepare.Prepared, run: RunDir, model: Any) -> float:
    """Of a few steps, which leave a checkpoint; the first ones warm up."""
    short = config.model_copy(
        update={
            "training": config.training.model_copy(update={"steps": STEPS}),
            "evaluation": config.evaluation.model_copy(update={"every": 0}),
            "checkpoints": Checkpoints(every=STEPS),
            "logging": Logging(),
        }
    )
    trainer = RunTrainer(short, prepared, run, model, config.seeds[0])
    robust(trainer, specs.objective(config.method), on_nan=config.training.on_nan)
    clock = _Clock()
    trainer.add_callback(clock)
    trainer.train()
    timed = clock.times[UNTIMED:]
    return (timed[-1] - timed[0]) / (len(timed) - 1)


def _peak() -> int | None:
    """Memory of this process at its highest; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def table(estimate: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows for people."""
    seconds = estimate["seconds"]
    long = f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))
    return [
        *((f"{x['split']} {x['name']}", f"{x['used']:,} of {x['records']:,} records") for x in estimate["counts"]),
        ("pruned, quarantined", f"{estimate['pruned']:,}, {estimate['quarantined']:,}"),
        ("method", estimate["method"]),
        ("parameters", f"{estimate['parameters']:,} ({estimate['vocabulary']:,} tokens)"),
        ("steps", f"{estimate['steps']:,} ({estimate['steps'] / estimate['steps_per_epoch']:.1f} epochs)"),
        (
            "training time",
            f"{long} ({estimate['seconds_per_step']:.3f} s per step, {estimate['runs']} run(s))",
        ),
        ("memory", f"{estimate['memory_bytes'] / 2**30:.1f} GB" if estimate["memory_bytes"] else "unknown"),
        ("disk", f"{estimate['disk_bytes'] / 2**20:,.0f} MB"),
    ]
