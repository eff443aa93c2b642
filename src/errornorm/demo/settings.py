"""What the demo trains on, and how."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import grammar
from ..data.files import written
from ..data.lines import DataError
from ..data.noise import corrupt
from ..data.quarantine import Quarantine
from ..data.records import Corpus
from ..training.config import (
    Checkpoints,
    Data,
    Evaluation,
    Logging,
    Model,
    Source,
    Tokenizer,
    TrainConfig,
    Training,
)

NOISE = 0.5  # untranslated copies, as a share of the clean pairs
METHODS = {  # what the demo calls them; truncation begins when the model is competent, late in so short a run
    "MLE": "mle",
    "Loss truncation": "loss_truncation(0.1, start={start})",
    "Token loss truncation": "token_loss_truncation(0.1, start={start})",
    "TaiLr": "tailr(0.5, floor=0.2)",
    "ENT": "ent_fraction(0.1, start={start})",
    "ENT-Auto": "ent_auto()",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is learnt from how much."""

    train: int
    test: int
    steps: int
    tokens: int
    vocab: int
    learning_rate: float
    overrides: dict[str, Any]


EMBEDDED = Size(
    train=6000, test=300, steps=720, tokens=1000, vocab=1000, learning_rate=6e-3,
    overrides={
        "d_model": 64, "init_std": 0.125, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256, "dropout": 0.0,
    },
)  # fmt: skip
OWN = Size(train=10**9, test=300, steps=1200, tokens=2000, vocab=4000, learning_rate=2e-3, overrides={})


@dataclass(frozen=True, slots=True)
class Task:
    """Pairs to learn from and to be tested on, in files; and the captions, if it is our grammar that made them."""

    folder: Path
    size: Size
    captions: list[grammar.Caption] | None
    records: int
    quarantined: int

    @property
    def train(self) -> Path:
        return self.folder / "train.jsonl"

    @property
    def test(self) -> Path:
        return self.folder / "test.jsonl"


def embedded(folder: Path, seed: int, size: Size = EMBEDDED) -> Task:
    """Captions of our own grammar."""
    pairs = grammar.corpus(size.train + size.test, seed)
    rows = [(caption.english, french) for caption, french in pairs]
    _write(folder, rows[: size.train], rows[size.train :], seed)
    return Task(folder, size, [caption for caption, _ in pairs[size.train :]], len(rows), 0)


def own(folder: Path, source: Path, target: Path, seed: int, size: Size = OWN) -> Task:
    """Aligned texts of the user; some of the lines are kept for the test."""
    quarantine = Quarantine(folder / "quarantine.jsonl")
    corpus = Corpus(source, target, needs=("source", "target"))
    rows = [(record.text("source"), record.text("target")) for record in quarantine.filter(corpus)]
    test = min(size.test, len(rows) // 10)
    if test < 1:
        raise DataError(f"{source}: {len(rows)} pairs are too few; give at least ten, better ten thousand")
    random.Random(f"demo {seed}").shuffle(rows)
    _write(folder, rows[test:][: size.train], rows[:test], seed)
    return Task(folder, size, None, quarantine.records, quarantine.problems)


def config(task: Task, method: str, seed: int) -> TrainConfig:
    """The run of one method; `errornorm train` does the same with it."""
    size = task.size
    return TrainConfig(
        task="translation",
        output=task.folder / "runs" / method.lower().replace(" ", "-"),
        objective=METHODS[method].format(start=size.steps * 2 // 3),
        seeds=[seed],
        data=Data(train=[Source(path=task.train)], test=[Source(path=task.test)], max_length=128),
        model=Model(preset="tiny", overrides=size.overrides),
        tokenizer=Tokenizer(vocab=size.vocab),
        training=Training(
            steps=size.steps,
            tokens_per_step=size.tokens,
            learning_rate=size.learning_rate,
            warmup=100,
            schedule="linear",
        ),
        evaluation=Evaluation(metrics=["bleu", "copies"], max_new_tokens=80),
        checkpoints=Checkpoints(every=size.steps, keep=1),
        logging=Logging(every=5),
    )


def _write(folder: Path, train: Iterable[tuple[str, str]], test: Iterable[tuple[str, str]], seed: int) -> None:
    clean = ({"source": source, "target": target} for source, target in train)
    with written(folder / "train.jsonl") as file:
        for example in corrupt(clean, {"untranslated": NOISE}, seed=seed):
            file.write(json.dumps(example, ensure_ascii=False) + "\n")
    with written(folder / "test.jsonl") as file:
        for source, target in test:
            file.write(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n")
