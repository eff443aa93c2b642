"""A transformers Trainer that reads the plan of a run, saves whole checkpoints, and tells what it does.

Training itself is the Trainer's, and the loss is the attached objective. Here are only the edges: where batches come
from, where checkpoints go, what is written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..evaluation.judge import judge
from ..evaluation.runs import LOWER
from ..integrations.attach import Attachment
from ..integrations.telemetry import PREFIX
from . import checkpoints
from .batches import Plan
from .config import TrainConfig
from .disk import room_for
from .measured import mean_of, question, sets_of
from .pickles import loading_checkpoint
from .prepare import Prepared
from .rundir import RunDir
from .stops import Stops
from .together import on_cpu, staged, together, told

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import PrinterCallback
except ImportError as error:
    raise ImportError("training needs more packages: pip install errornorm[train]") from error

Callback = TrainerCallback
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup", "inverse_sqrt": "inverse_sqrt"}
RECOMPUTE = next(  # its name since Transformers 5.23, and before
    name for name in ("activation_checkpointing", "gradient_checkpointing") if hasattr(TrainingArguments, name)
)


class RunTrainer(Trainer):
    """Args:
    config: Of the run.
    prepared: What it reads.
    run: Where it writes.
    model: What learns.
    seed: Of this run.
    """

    def __init__(self, config: TrainConfig, prepared: Prepared, run: RunDir, model: Any, seed: int) -> None:
        self.config, self.prepared, self.run, self._stage = config, prepared, run, ""
        super().__init__(
            model=model,
            args=arguments(config, run, seed),
            train_dataset=prepared.dataset,
            eval_dataset=prepared.dataset,  # a name only: `evaluate` reads the evaluation sets
            data_collator=prepared.dataset.collate,
            processing_class=prepared.tokenizer,
        )
        self.remove_callback(PrinterCallback)
        if self.is_fsdp_enabled:
            _refuse_shared(model)

    def get_train_dataloader(self) -> Any:
        training, world = self.config.training, self.args.world_size
        plan = Plan(
            self.prepared.examples,
            tokens=training.tokens_per_step,
            steps=training.steps,
            seed=self.args.seed,
            pieces=world * training.micro_batches,
            rank=self.args.process_index,
            world=world,
        )
        return torch.utils.data.DataLoader(
            self.prepared.dataset,
            batch_sampler=plan,
            collate_fn=self.prepared.dataset.collate,
            generator=torch.Generator(),  # else each start would draw from the generator of the dropout
        )

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """On the validation sets; of several, the means."""
        asked = question(self.config, self.config.evaluation.during)
        rows = {}
        for part in self.prepared.valid:
            verdict = judge(self.model, self.prepared.tokenizer, part.texts, asked, part.prefix)
            rows[part.name] = verdict.values
        values = told(mean_of(list(rows.values())))  # ranks that differ in the last bit must not differ in the best
        row = {"step": self.state.global_step, "split": "valid"} | values | sets_of(rows)
        with together():
            self.run.append(self.run.metrics, row)
        found = {f"eval_{name}": value for name, value in values.items()}
        self.log(dict(found))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def log(self, *args: Any, **kwargs: Any) -> None:
        super().log(*args, **kwargs)
        # The rows are in metrics.jsonl. Here they would grow with the steps, in memory and in each checkpoint.
        self.state.log_history.clear()

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        better: bool = super()._determine_best_metric(metrics, trial)
        self.control.should_save = self.control.should_save or better
        return better

    def _get_output_dir(self, trial: Any) -> str:
        return self._stage or str(super()._get_output_dir(trial))

    @contextmanager
    def _staging(self, stage: Path) -> Iterator[None]:
        self._stage = str(stage)
        try:
            yield
        finally:
            self._stage = ""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As the Trainer writes it, but into a stage, which is renamed once all of it is on the disk."""
        step = self.state.global_step
        with together():
            self._require_finite()
            self.run.sync_rows()
        with staged(self.run, self.run.checkpoints / checkpoints.name(step)) as stage:
            with together(), room_for(self.run.path), self._staging(stage):
                super()._save_checkpoint(model, trial)
            if self.run.main:
                # The Trainer adds a folder of its own: its content is the checkpoint.
                inner = stage / f"checkpoint-{step}"
                for path in inner.iterdir():
                    path.rename(stage / path.name)
                inner.rmdir()
        with together():
            if self.run.main:
                checkpoints.rotate(self.run.checkpoints, self.config.checkpoints.keep, self.state.best_global_step)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with loading_checkpoint(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with loading_checkpoint(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with loading_checkpoint(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading_checkpoint(checkpoint):
            super()._load_rng_state(checkpoint)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        with together(), room_for(self.run.path):  # the Trainer's ranks wait for each other behind it
            if self.is_fsdp_enabled and not _internal_call:
                # By default the Trainer has shards only in its checkpoints, and no model at all.
                weights = self.accelerator.get_state_dict(self.model)
                if self.args.should_save:
                    self._save(output_dir, state_dict=weights)
            else:
                super().save_model(output_dir, _internal_call)

    def _require_finite(self) -> None:
        assert self.model is not None
        assert self.optimizer is not None
        for name, weight in self.model.named_parameters():
            # Also where the weight is as it was: with an infinite second moment it would stay so for ever.
            moments = {f"{key} of {name}": value for key, value in self.optimizer.state.get(weight, {}).items()}
            for what, value in {name: weight, **moments}.items():
                if isinstance(value, torch.Tensor) and not value.isfinite().all():
                    raise FloatingPointError(f"NaN or Inf in {what}, which is not saved")


class Journal(TrainerCallback):
    """Rows of metrics.jsonl, each about one step, so that a resumed run writes the same ones; and of timing.jsonl."""

    def __init__(self, run: RunDir, handle: Attachment, tell: Callable[[int, dict[str, Any]], None]) -> None:
        self.run, self.handle, self.tell = run, handle, tell
        self.began, self.seen, self.ended = time.monotonic(), 0, 0.0

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self.handle.telemetry.clear()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        terms = self.handle.terms
        self.seen += 0 if terms is None else terms.num_tokens * args.world_size * args.gradient_accumulation_steps
        self.ended = time.monotonic()
        control.should_log = control.should_log or state.global_step >= state.max_steps  # also of the shortest run
        self.tell(state.global_step, {})

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self._paused()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self._paused()

    def _paused(self) -> None:
        """Evaluations and checkpoints are no part of the speed of training."""
        now = time.monotonic()
        self.began += now - max(self.ended, self.began)
        self.ended = now

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **rest: Any
    ) -> None:
        if not logs or "loss" not in logs:
            return
        row = {name.removeprefix(PREFIX): value for name, value in logs.items() if name.startswith(PREFIX)}
        row["loss"] = row.pop("objective", None)
        row |= {name: logs[name] for name in ("learning_rate", "grad_norm") if name in logs}
        seconds, self.began, seen, self.seen = time.monotonic() - self.began, time.monotonic(), self.seen, 0
        speed = {"seconds": seconds, "tokens_per_second": seen / max(seconds, 1e-9)}
        with together():
            self.run.append(self.run.metrics, {"step": state.global_step, "split": "train"} | row)
            self.run.append(self.run.timing, {"step": state.global_step} | speed)
        self.tell(state.global_step, row | speed)


class Stopper(TrainerCallback):
    """Save and stop after a step, when a signal asks for it."""

    def __init__(self, stops: Stops) -> None:
        self.stops = stops

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        if self.stops.due():
            control.should_save = control.should_training_stop = True


def arguments(config: TrainConfig, run: RunDir, seed: int) -> TrainingArguments:
    training, evaluation = config.training, config.evaluation
    every = bool(evaluation.every and config.data.valid)
    best = evaluation.best
    recompute: Any = {RECOMPUTE: training.gradient_checkpointing}
    return TrainingArguments(
        output_dir=str(run.path),
        seed=seed,
        max_steps=training.steps,
        gradient_accumulation_steps=training.micro_batches,
        learning_rate=training.learning_rate,
        lr_scheduler_type=SCHEDULES[training.schedule],
        warmup_steps=training.warmup,
        label_smoothing_factor=training.label_smoothing,
        weight_decay=training.weight_decay,
        adam_beta1=training.betas[0],
        adam_beta2=training.betas[1],
        max_grad_norm=training.clip,
        bf16=training.precision == "bfloat16",
        fp16=training.precision == "float16",
        eval_strategy="steps" if every else "no",
        eval_steps=evaluation.every if every else None,
        metric_for_best_model=best if every else None,
        greater_is_better=best not in LOWER if every and best else None,
        save_strategy="steps",
        save_steps=config.checkpoints.every,
        logging_strategy="steps",
        logging_steps=config.logging.every,
        logging_nan_inf_filter=False,
        report_to=list(config.logging.report_to) or "none",
        disable_tqdm=True,
        log_level="error",
        log_level_replica="error",
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        use_cpu=on_cpu(),
        dataloader_pin_memory=torch.cuda.is_available(),
        **recompute,
    )


def _refuse_shared(model: Any) -> None:
    """Accelerate gives each sharded group its own parameters; only those of head and input embeddings may be one."""
    if not model.config.is_encoder_decoder:
        return
    encoder, decoder = (part.get_input_embeddings().weight for part in (model.get_encoder(), model.get_decoder()))
    if encoder is decoder:
        raise ValueError(
            "FSDP cannot shard embeddings that encoder and decoder share: start it with torchrun, without FSDP, or set "
            "model.overrides: {tie_word_embeddings: false, share_encoder_decoder_embeddings: false}"
        )
