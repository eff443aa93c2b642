"""Lightning: a callback for a LightningModule whose `training_step` returns `self.model(**batch).loss`."""

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
        self._steps = trainer.global_step
        self.handle.telemetry.clear()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if not self.handle.healthy(trainer.global_step):
            optimizer.zero_grad(set_to_none=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        self.handle.advance()
        if trainer.global_step % getattr(trainer, "log_every_n_steps", 1) == 0:
            pl_module.log_dict(self.handle.telemetry.flush())

    def state_dict(self) -> dict[str, Any]:
        return self.handle.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.handle.load_state_dict(state_dict)
