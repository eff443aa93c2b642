"""What an objective costs in a whole training step: ENT, MLE and the model's own loss in the same engine.

    python scripts/train_overhead.py [--rounds 5] [--steps 14] [--output docs/results]

Trains the preset `tiny` on captions of our grammar, with vocabularies of 4,000 and 32,000. In each round every variant
trains for a few steps, one after the other, on the same batches; ratios are taken within a round, and their median is
reported. Truncation is on from the first step. The objective's own work, to weigh the tokens and to settle its state,
is also timed by itself: it is too small to be seen in the whole.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from errornorm import TrainConfig, __version__, objective
from errornorm.data import grammar
from errornorm.integrations.trainer import robust
from errornorm.training import models, prepare
from errornorm.training.engine import RunTrainer
from errornorm.training.rundir import RunDir

VARIANTS = {"stock": None, "mle": "mle", "ent_fraction": "ent_fraction(0.1)", "ent_auto": "ent_auto"}
PAIRS = (("ent_fraction", "mle"), ("ent_fraction", "stock"), ("ent_auto", "mle"), ("ent_auto", "ent_fraction"))
UNTIMED = 6  # the guess about what is dropped settles in these


class Clock(TrainerCallback):
    """When steps end, and how long the objective had worked by then."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.times = [(time.perf_counter(), 0.0)]

    def on_step_end(self, *args: Any, **rest: Any) -> None:
        self.times.append((time.perf_counter(), self.spent))

    def watched(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            begin = time.perf_counter()
            try:
                return work(*args)
            finally:
                self.spent += time.perf_counter() - begin

        return timed

    @property
    def seconds(self) -> tuple[float, float]:
        """Of a step, and of the objective in it."""
        (begin, before), (end, after) = self.times[UNTIMED], self.times[-1]
        steps = len(self.times) - 1 - UNTIMED
        return (end - begin) / steps, (after - before) / steps


def configure(folder: Path, vocab: int, steps: int) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "task": "translation",
            "output": folder / "run",
            "data": {"train": {"path": folder / "train.jsonl"}},
            "tokenizer": {"vocab": 1000},
            "model": {"preset": "tiny", "overrides": {"vocab_size": vocab, "decoder_vocab_size": vocab}},
            "training": {"steps": steps, "tokens_per_step": 4000},
            "checkpoints": {"every": 10**6},
        }
    )


def run_once(config: TrainConfig, prepared: Any, spec: str | None, folder: Path) -> tuple[float, float]:
    model = models.build(config, prepared.tokenizer, 0)
    trainer = RunTrainer(config, prepared, RunDir(folder / "run"), model, 0)
    trainer._save_checkpoint = lambda *args: None  # type: ignore[method-assign]
    clock = Clock()
    if spec is not None:
        chosen = objective(spec)
        robust(trainer, replace(chosen, weigh=clock.watched(chosen.weigh), settle=clock.watched(chosen.settle)))
    trainer.add_callback(clock)
    trainer.train()
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    models.quiet()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with (folder / "train.jsonl").open("w", encoding="utf-8") as file:
            for caption, french in grammar.corpus(6000, 0):
                file.write(json.dumps({"source": caption.english, "target": french}, ensure_ascii=False) + "\n")
        for vocab in (4000, 32000):
            config = configure(folder, vocab, args.steps)
            prepare.prepare(config, folder / "data")
            prepared = prepare.load(config, folder / "data")
            seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
            own: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for number in range(args.rounds):
                names = list(VARIANTS)
                for name in names[number % len(names) :] + names[: number % len(names)]:  # nobody is always the first
                    whole, part = run_once(config, prepared, VARIANTS[name], folder)
                    seconds[name].append(whole)
                    own[name].append(part)
                print(vocab, {name: round(times[-1], 4) for name, times in seconds.items()}, flush=True)
            ratios = {
                f"{one} to {other}": statistics.median(a / b for a, b in zip(seconds[one], seconds[other], strict=True))
                for one, other in PAIRS
            }
            print(vocab, ratios, {name: statistics.median(times) for name, times in own.items()}, flush=True)
            rows.append({"vocab": vocab, "seconds_per_step": seconds, "ratios": ratios, "objective_seconds": own})
    settings = {
        "preset": "tiny", "tokens_per_step": 4000, "steps": args.steps, "untimed": UNTIMED, "rounds": args.rounds,
        "threads": torch.get_num_threads(), "torch": torch.__version__, "errornorm": __version__,
        "cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(),
    }  # fmt: skip
    args.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"settings": settings, "rows": rows}, indent=1)
    (args.output / "train_overhead.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
