"""Lightning: a callback for a LightningModule whose `training_step` returns `self.model(**batch).loss`.

Each micro-batch is divided by its own tokens, and Lightning averages over `accumulate_grad_batches`, as it does with
any loss.
"""

from __future__ import annotations

from typing import Any

import torch

from .attach import Attachment

try:
    from lightning import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("this adapter needs lightning: pip install errornorm[lightning]") from error


class RobustCallback(Callback):
    """Tells the attached objective about steps, logs what it sees, and keeps its state in the checkpoint.

    Args:
        handle: What `attach` returned.
    """

    def __init__(self, handle: Attachment) -> None:
        self.handle = handle
        self._steps = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.handle.model.training:  # Lightning trains in whatever mode it finds
            raise ValueError(
                f"{type(self.handle.model).__name__} is in evaluation mode, as from_pretrained leaves it, and would "
                "train on plain likelihood without dropout: call its train() first"
            )
        if trainer.global_step > 0 and self.handle.loss.steps_taken == 0:
            raise ValueError(
                f"the checkpoint of step {trainer.global_step} holds no state of the objective: it was made without "
                "RobustCallback; start the run anew, or resume it without one"
            )
        self._steps = trainer.global_step
        self.handle.expect_advance()
        self.handle.telemetry.clear()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if getattr(trainer.precision_plugin, "scaler", None) is not None:  # it leaves out steps with overflows itself
            return
        if not self.handle.healthy(trainer.global_step):
            optimizer.zero_grad(set_to_none=True)  # a parameter without a gradient does not move

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        self.handle.advance()
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and self._steps % every == 0:
            pl_module.log_dict(self.handle.telemetry.flush())

    def state_dict(self) -> dict[str, Any]:
        return self.handle.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.handle.load_state_dict(state_dict)
