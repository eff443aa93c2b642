"""Hugging Face Trainer and Seq2SeqTrainer: steps, telemetry, state in the checkpoint, and no NaN in the weights.

`attach` alone makes a Trainer's loss robust. `robust(trainer, objective)` does that and adds the callback. Those who
want only the loss, on the model's own logits, take `LossFunction` or `ComputeLoss`.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from ..loss import RobustLoss
from ..objectives import Objective
from .attach import Attachment, attach, attached
from .heads import shifts_labels, without_adapters
from .jobs import COLUMNS, SOURCE, part_of_step
from .packing import packed, unpacked

try:
    from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError("this adapter needs transformers: pip install errornorm[hf]") from error

NAME = "errornorm"


class RobustCallback(TrainerCallback, ExportableState):
    """Tells the attached objective about steps, logs what it sees, and keeps its state in the checkpoint.

    Args:
        handle: What `attach` returned.
    """

    def __init__(self, handle: Attachment | None = None) -> None:
        self._handle = handle

    @property
    def handle(self) -> Attachment:
        assert self._handle is not None
        return self._handle

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {NAME: packed(self.handle.state_dict())}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        _refuse_rivals(args)
        if self._handle is None:  # made anew by restore_callback_states_from_checkpoint
            self._handle = attached(rest["model"])
        self.handle.expect_advance()
        self.handle.telemetry.clear()
        callbacks: Any = state.stateful_callbacks or {}
        saved = callbacks.get(type(self).__name__)
        if state.global_step > 0:
            if not isinstance(saved, dict) or NAME not in saved.get("attributes", {}):
                raise ValueError(
                    f"the checkpoint of step {state.global_step} holds no state of the objective: it was made "
                    "without RobustCallback; start the run anew, or resume it without one"
                )
            self.handle.load_state_dict(unpacked(saved["attributes"][NAME]))

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        if args.fp16:  # its loss scaler looks for overflows itself, expects some, and leaves out those steps
            return
        if not self.handle.healthy(state.global_step):
            rest["optimizer"].zero_grad(set_to_none=True)  # a parameter without a gradient does not move

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self.handle.advance()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **rest: Any,
    ) -> None:
        if logs is None or "loss" not in logs:  # evaluation, or the summary at the end
            return
        row = self.handle.telemetry.flush()
        logs.update(row)
        if state.log_history:
            state.log_history[-1].update(row)


def robust(trainer: Trainer, objective: Objective, **options: Any) -> Attachment:
    """Attach an objective to a trainer's model, and the callback in front of its loggers.

    The trainer's own label smoothing moves into the objective, so that it is applied exactly once.

    Args:
        trainer: A Trainer or Seq2SeqTrainer that has not started.
        objective: What to optimize, e.g. `errornorm.ent_fraction(0.1)`.
        options: Of `attach`.
    """
    if not isinstance(trainer, Trainer):
        raise ValueError(f"robust needs a trainer, not a {type(trainer).__name__}: for a model use errornorm.attach")
    _refuse_rivals(trainer.args)
    if trainer.compute_loss_func is not None:
        raise ValueError("the trainer has a compute_loss_func, which would take the labels: leave it out")
    smoothing = trainer.args.label_smoothing_factor
    if smoothing and options.setdefault("label_smoothing", smoothing) != smoothing:
        raise ValueError(
            f"label smoothing is given twice, {smoothing} to the trainer and {options['label_smoothing']} here: "
            "leave one out"
        )
    if trainer.model_init is not None:
        raise ValueError("model_init makes a new model in train(), without the objective: pass model= instead")
    _refuse_dropped_columns(trainer)
    assert trainer.model is not None
    handle = attach(trainer.model, objective, **options)
    trainer.label_smoother = None
    trainer.model_accepts_loss_kwargs = True  # as a trainer does that is made after `attach`
    trainer._loss_shifts_labels = not handle.encoder_decoder
    trainer.remove_callback(RobustCallback)  # of an objective that was detached
    others = list(trainer.callback_handler.callbacks)
    for callback in others:
        trainer.pop_callback(callback)
    for callback in (RobustCallback(handle), *others):
        trainer.add_callback(callback)
    return handle


class LossFunction:
    """For `model.loss_function = LossFunction(model, objective)`: the model hands over its logits and labels.

    Not fused: the logits exist. Call `advance()` after each optimizer step. Only models whose forward calls
    `self.loss_function` use it; T5, BART and Marian do not: for these, `attach`.
    """

    def __init__(self, model: PreTrainedModel, objective: Objective, **options: Any) -> None:
        self.model, self.shift = model, shifts_labels(model)
        self.loss = RobustLoss(objective, **options)
        if self.shift:
            # Or a trainer, which looks inside of adapters, counts first tokens, and GPT-2 never predicts them.
            vars(without_adapters(model))["loss_type"] = "ForCausalLM"

    def __call__(
        self,
        logits: Tensor,
        labels: Tensor | None,
        vocab_size: int | None = None,
        num_items_in_batch: Tensor | int | None = None,
        shift_labels: Tensor | None = None,
        **unused: Any,
    ) -> Tensor:
        if shift_labels is None:
            assert labels is not None
            shift_labels = F.pad(labels, (0, 1), value=self.loss.ignore_index)[..., 1:] if self.shift else labels
        self.loss.train(self.model.training and logits.requires_grad)
        return part_of_step(self.loss(logits=logits, targets=shift_labels.to(logits.device)), num_items_in_batch)

    def advance(self) -> None:
        if self.loss.batches_seen == 0:
            raise RuntimeError(
                f"the objective {self.loss.objective} never ran: a trainer's label_smoothing_factor takes the labels "
                "away; pass label_smoothing= here instead. Or another model than this one was in training mode"
            )
        self.loss.advance()


class ComputeLoss(LossFunction):
    """For `Trainer(compute_loss_func=ComputeLoss(model, objective))`: the trainer hands over outputs and labels.

    Encoder-decoder models are refused: without labels they would build wrong decoder inputs, some of them silently.
    Label smoothing is an option here; the trainer's label_smoothing_factor has no effect beside a compute_loss_func.
    """

    def __init__(self, model: PreTrainedModel, objective: Objective, **options: Any) -> None:
        if model.config.is_encoder_decoder:
            raise ValueError(
                f"compute_loss_func takes the labels away from {type(model).__name__}, which needs them for its "
                "decoder inputs: use errornorm.attach"
            )
        super().__init__(model, objective, **options)

    def __call__(  # type: ignore[override]
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        return super().__call__(outputs["logits"], labels, num_items_in_batch=num_items_in_batch)


def _refuse_rivals(args: TrainingArguments) -> None:
    if args.n_gpu > 1:
        raise ValueError(
            f"one process for {args.n_gpu} GPUs copies the model at every step: start one for each (torchrun)"
        )
    if getattr(args, "use_liger_kernel", False):
        raise ValueError("Liger's fused loss would bypass the objective: set use_liger_kernel=False")


def _refuse_dropped_columns(trainer: Trainer) -> None:
    columns = getattr(trainer.train_dataset, "column_names", None) or []
    lost = [name for name in (*COLUMNS, SOURCE) if name in columns]
    if lost and trainer.args.remove_unused_columns:
        raise ValueError(
            f"the data set has {', '.join(lost)} for the objective, and the trainer would remove it: "
            "set remove_unused_columns=False"
        )
