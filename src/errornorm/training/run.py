"""A run from beginning to end: read, learn, evaluate, write down. Killed at any time, it can go on."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist

from .. import specs
from ..data.files import require_utf8
from ..data.lines import DataError
from ..evaluation.runs import facts
from ..integrations.trainer import robust
from ..threads import on_threads
from . import checkpoints, configfile, models, prepare
from .config import TrainConfig
from .disk import room_for
from .engine import Journal, RunTrainer, Stopper
from .finish import finish
from .measured import measures, question
from .pickles import refuse_code, require_state
from .prepare import Prepared
from .progress import Progress, Quiet
from .rundir import RunDir, manifest
from .stops import Stopped, Stops, at_once
from .together import largest, met, on_cpu, rank, together, told

UNFELT = {"micro_batches", "on_nan", "gradient_checkpointing"}  # settings that change no result of a sound run
FREE = {"logging", "checkpoints", "output", "seeds"}  # what may change when a run goes on
_START = re.compile(r"\bstart=(\d+)")  # of an objective, as it prints itself


def train(
    config: TrainConfig,
    *,
    resume: bool = False,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Train, evaluate and save a model for each seed; return their evaluations.

    Args:
        config: What to do.
        resume: Go on with runs that were stopped; those that are done are left as they are.
        command: How the user started it, for the manifest.
        progress: Who tells the user; nobody if not given.

    Example:
        >>> import errornorm
        >>> config = errornorm.TrainConfig(  # doctest: +SKIP
        ...     task="translation", output="runs/first", data={"train": {"path": "noisy.jsonl"}}
        ... )
        >>> errornorm.train(config)  # doctest: +SKIP
    """
    models.quiet()
    require(config)
    progress = progress if progress and is_main() else Quiet()
    for line in notices(config):
        progress.say(line)
    several = len(config.seeds) > 1
    rows = []
    with met():
        for seed in config.seeds:
            run = RunDir(config.output / f"seed-{seed}" if several else config.output, main=rank() == 0)
            with progress.over(f"seed {seed}" if several else ""), _begun(run, resume, several) as going_on:
                rows.append(_one(config, run, seed, going_on, list(command or sys.argv), progress))
    return rows


def require(config: TrainConfig) -> None:
    """Refuse what cannot be done here, before any work is done."""
    for name in config.logging.report_to:
        packages = ("tensorboard", "tensorboardX") if name == "tensorboard" else (name,)
        if not any(find_spec(package) for package in packages):
            raise ImportError(f"logging.report_to: {name} is not installed: pip install {name}, or leave it out")
    if config.training.precision == "float16" and on_cpu():
        raise ValueError("training.precision: float16 needs a GPU; on a CPU choose float32 or bfloat16")
    for names in (measures(config), config.evaluation.during):
        question(config, names)
    corpora = (*config.data.train, *config.data.valid, *config.data.test)
    require_utf8(config.output, *(path for corpus in corpora for path in (corpus.path, corpus.pair)))


def notices(config: TrainConfig) -> list[str]:
    """What is allowed, but hardly meant."""
    out, steps = [], config.training.steps
    start = max((int(found) for found in _START.findall(repr(specs.objective(config.method)))), default=0)
    if start >= steps:
        out.append(f"the objective starts at step {start}, and there are {steps}: all of the run is likelihood")
    if config.evaluation.best is not None and config.evaluation.every and config.evaluation.every > steps:
        out.append(f"evaluation.every is {config.evaluation.every}, and there are {steps} steps: the best is the last")
    return out


@contextmanager
def _begun(run: RunDir, resume: bool, several: bool) -> Iterator[bool]:
    """The folder, locked; and whether a run in it goes on."""
    with ExitStack() as stack:
        with together():
            if several and run.main and RunDir(run.path.parent).has_run:
                raise ValueError(f"{run.path.parent} has the run of one seed: for several, choose another output")
            going_on = resume and (run.has_run or not several)
            stack.enter_context(run.begun(going_on))
        yield told(going_on)


def _one(
    config: TrainConfig, run: RunDir, seed: int, resume: bool, command: list[str], progress: Progress
) -> dict[str, Any]:
    before: dict[str, Any] = {}
    if resume:
        with together():
            _same(config, run, seed)
            done, before = (facts(path) if path.is_file() else {} for path in (run.evaluation, run.manifest))
        if done := told(done):
            progress.say(f"{run.path} is done")
            return done
    with on_threads(_threads(before)):
        return _worked(config, run, seed, before, command, progress)


def _worked(
    config: TrainConfig, run: RunDir, seed: int, before: dict[str, Any], command: list[str], progress: Progress
) -> dict[str, Any]:
    """`before`: what the manifest of a run says that goes on."""
    with at_once():
        with together(), room_for(run.path):
            run.write_text(run.config, configfile.dump(config))
        with _undone(run):
            models.require(config)
            prepared = _prepared(config, run, progress)
            with progress.doing("building the model"):
                model = models.build(config, prepared.tokenizer, seed)
        about = _about(config, prepared, model, seed, command)
        with together(), room_for(run.path):
            if before.get("data_hash", about["data_hash"]) != about["data_hash"]:
                raise DataError(f"{run.manifest}: the run began with other data; bring them back, or start a new run")
            run.write_json(run.manifest, about)
    with Stops(largest, progress.say) as stops, room_for(run.path):
        trainer = _trained(config, prepared, run, model, seed, progress, stops)
        return finish(config, prepared, run, trainer, about, progress, stops)


@contextmanager
def _undone(run: RunDir) -> Iterator[None]:
    """A run that cannot begin leaves nothing: else its mended configuration would be refused as another one."""
    try:
        yield
    except (DataError, ValueError, ImportError, FloatingPointError):
        if run.main and not run.manifest.exists():
            run.config.unlink(missing_ok=True)
            shutil.rmtree(run.data, ignore_errors=True)
        raise


def _threads(before: dict[str, Any]) -> int:
    """As the run began: the last bits depend on it."""
    number = before.get("threads")
    same = isinstance(number, int) and number > 0 and before.get("ranks") == _ranks()
    return int(before["threads"]) if same else torch.get_num_threads()


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _about(config: TrainConfig, prepared: Prepared, model: Any, seed: int, command: list[str]) -> dict[str, Any]:
    return manifest(
        command=command,
        seed=seed,
        method=config.method,
        objective=repr(specs.objective(config.method)),
        task=config.task,
        parameters=model.num_parameters(),
        data=[asdict(count) for count in prepared.counts],
        training=config.training.model_dump(exclude=UNFELT),
        threads=torch.get_num_threads(),
        ranks=_ranks(),
    )


def _prepared(config: TrainConfig, run: RunDir, progress: Progress) -> Prepared:
    with together(), room_for(run.path):
        if run.main and checkpoints.verify(run.data) is not None:
            with progress.doing("reading the corpus") as tell, checkpoints.staging(run.data) as stage:
                prepare.prepare(config, stage, tell)
    prepared = prepare.load(config, run.data)
    for count in prepared.counts:
        progress.say(
            f"{count.split} {count.name}: {count.records} records = {count.used} used + {count.pruned} pruned + "
            f"{count.quarantined} quarantined"
        )
    if any(count.quarantined for count in prepared.counts):
        progress.say(f"what is quarantined, and why: {run.data}/*.quarantine.jsonl")
    return prepared


def _trained(
    config: TrainConfig, prepared: Prepared, run: RunDir, model: Any, seed: int, progress: Progress, stops: Stops
) -> RunTrainer:
    """The trainer, with the last or best weights in its model."""
    trainer = RunTrainer(config, prepared, run, model, seed)
    handle = robust(trainer, specs.objective(config.method), on_nan=config.training.on_nan)
    with together():
        newest = checkpoints.newest(run.checkpoints) if run.main else None
        step = checkpoints.step_of(newest) if newest else 0
        if newest:
            refuse_code(newest)
        for path in (run.metrics, run.timing):
            run.truncate_rows(path, step)
    newest, step = told((newest, step))
    if newest:
        require_state(newest)
        progress.say(f"going on from step {step}")
    with progress.steps(config.training.steps, step) as tell:
        trainer.add_callback(Journal(run, handle, tell))
        trainer.add_callback(Stopper(stops))
        try:
            trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        except FloatingPointError as error:
            advice = "lower training.learning_rate, or leave such steps out with training.on_nan: skip"
            raise FloatingPointError(f"{error}; after step {trainer.state.global_step}; {advice}") from error
    step = trainer.state.global_step
    if step < config.training.steps:
        raise Stopped(stops.signal, step, run.checkpoints / checkpoints.name(step))
    handle.detach()
    best = trainer.state.best_global_step
    if best and best != step:
        progress.say(f"the best {config.evaluation.best} was at step {best}")
        folder = run.checkpoints / checkpoints.name(best)
        with together():
            if run.main and (reason := checkpoints.verify(folder)):
                raise DataError(f"{folder} is the best checkpoint, but cannot be used ({reason}): start a new run")
            refuse_code(folder)
        trainer._load_from_checkpoint(str(folder))
    return trainer


def _same(config: TrainConfig, run: RunDir, seed: int) -> None:
    """A run goes on as it began."""
    before = configfile.load(run.config)
    old, new = before.model_dump(mode="json"), config.model_dump(mode="json")
    if seed not in before.seeds:
        raise ValueError(f"{run.path} has the run of seed {before.seeds[0]}, not {seed}: choose another output")
    changed = [key for key in old if key not in FREE and old[key] != new[key]]
    names = [name for key in changed for name in (_inside(key, old[key], new[key]) or [key])]
    if names:
        raise ValueError(
            f"{run.config} says otherwise about {', '.join(names)}: a run goes on as it began; "
            "undo the change, or choose another output"
        )


def _inside(key: str, old: Any, new: Any) -> list[str]:
    """Which settings of a section differ."""
    return [f"{key}.{name}" for name in old if old[name] != new[name]] if isinstance(old, dict) else []


def is_main() -> bool:
    """Whether this process is the one that speaks and writes."""
    return rank() == 0
