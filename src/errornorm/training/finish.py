"""The end of a run: the model is evaluated and saved, and the curves are drawn."""

from __future__ import annotations

import json
import math
from typing import Any

from .._version import __version__
from ..evaluation.judge import Verdict, judge
from . import checkpoints
from .card import model_card
from .config import TrainConfig
from .curves import draw
from .engine import RunTrainer
from .measured import mean_of, measures, question, sets_of
from .prepare import EvaluationSet, Prepared
from .progress import Progress
from .rundir import RunDir
from .stops import Stopped, Stops
from .together import staged, together


def finish(
    config: TrainConfig,
    prepared: Prepared,
    run: RunDir,
    trainer: RunTrainer,
    about: dict[str, Any],
    progress: Progress,
    stops: Stops,
) -> dict[str, Any]:
    """Evaluate and save; return the row of results. The evaluation is written last: it says that the run is done."""
    split, sets = ("test", prepared.test) if prepared.test else ("valid", prepared.valid)
    verdicts = {part.name: _judged(config, part, trainer, progress, stops) for part in sets}
    row: dict[str, Any] = {
        "split": split if sets else None,
        **(mean_of([verdict.values for verdict in verdicts.values()]) if verdicts else {}),
        "signatures": next(iter(verdicts.values())).signatures if verdicts else {},
        **sets_of({name: verdict.values for name, verdict in verdicts.items()}),
        "step": trainer.state.best_global_step or trainer.state.global_step,
        **{key: about[key] for key in ("task", "method", "objective", "seed", "data_hash")},
        "errornorm": __version__,
    }
    _require_numbers(row)
    with together():
        if outputs := _outputs(verdicts):
            run.write_text(run.outputs(split), "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in outputs))
    with staged(run, run.model) as stage:
        trainer.save_model(str(stage))
        if run.main:
            (stage / "training_args.bin").unlink(missing_ok=True)
            (stage / "README.md").write_text(model_card(config, about, row), encoding="utf-8")
            (stage / "errornorm.json").write_text(json.dumps(_use(config), indent=2), encoding="utf-8")
    with together():
        if run.main:
            draw(run, f"{config.method}, seed {about['seed']}")
        run.write_json(run.evaluation, row)
    return row


def _outputs(verdicts: dict[str, Verdict]) -> list[dict[str, str]]:
    """Of all sets; of several, each line says which one it is from."""
    several = len(verdicts) > 1
    return [line | ({"set": name} if several else {}) for name, x in verdicts.items() for line in x.outputs]


def _require_numbers(row: dict[str, Any]) -> None:
    """The last step has no next one to notice that it went wrong."""
    bad = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    if bad:
        raise FloatingPointError(
            f"step {row['step']}: {bad[0]} on {row['split']} is {row[bad[0]]}: lower training.learning_rate"
        )


def _judged(config: TrainConfig, part: EvaluationSet, trainer: RunTrainer, progress: Progress, stops: Stops) -> Verdict:
    asked = question(config, measures(config))
    total = len(part.texts[: asked.limit])
    step = trainer.state.global_step
    with progress.doing(f"evaluating on {part.name}") as say:

        def tell(done: int) -> None:
            if stops.due():
                raise Stopped(stops.signal, step, trainer.run.checkpoints / checkpoints.name(step))
            say(f"evaluating on {part.name}: {done} of {total}")

        tell(0)

        tokenizer = trainer.prepared.tokenizer
        return judge(trainer.model, tokenizer, part.texts, asked, part.prefix, tell)


def _use(config: TrainConfig) -> dict[str, Any]:
    """What someone who loads the model has to know."""
    return {
        "task": config.task,
        "prefix": config.data.prefix,
        "max_length": config.data.max_length,
        "tags": sorted({source.tag for source in config.data.train if source.tag}),
        "method": config.method,
    }
