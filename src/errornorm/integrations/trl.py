"""TRL's supervised fine-tuning, with its metrics."""

from __future__ import annotations

from typing import Any

import torch

from ..objectives import Objective
from .trainer import robust

try:
    from trl.trainer.sft_trainer import SFTTrainer as _SFTTrainer
except ImportError as error:
    raise ImportError("this adapter needs TRL: pip install errornorm[trl]") from error


class SFTTrainer(_SFTTrainer):
    """TRL's SFTTrainer, training with an objective. Evaluation is TRL's own: plain likelihood.

    Args:
        objective: What to optimize, e.g. `errornorm.ent_fraction(0.1)`.
        attach_options: Of `errornorm.attach`.
        args, options: Of TRL's trainer.
    """

    def __init__(
        self, *args: Any, objective: Objective, attach_options: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        kind: str = self.args.loss_type  # type: ignore[attr-defined]
        if kind != "nll":
            raise ValueError(f"loss_type={kind!r} is an objective of its own: leave it at 'nll'")
        self.handle = robust(self, objective, **(attach_options or {}), statistics=("margin",))

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[no-untyped-call]
        more: dict[str, Any] = {"use_cache": False, "num_items_in_batch": num_items_in_batch}
        if self.aux_loss_enabled:
            more["output_router_logits"] = True
        outputs = model(**{**inputs, **more})
        loss = outputs.loss
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        self._record(inputs, outputs)
        return (loss, outputs) if return_outputs else loss

    def _record(self, inputs: dict[str, Any], outputs: Any) -> None:
        """The metrics that TRL's users know, of all ranks."""
        terms = self.handle.terms
        if terms is None:  # a batch that was not finite, and is skipped
            return
        stats, metrics = terms.stats, self._metrics["train"]
        right = (stats.margin >= 0) & terms.counted
        length = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["position_ids"].numel()
        mine = torch.tensor(
            [float(terms.num_tokens), float(stats.entropy.sum()), float(right.sum()), float(length)],
            dtype=torch.float64,
        ).to(self.accelerator.device)
        tokens, entropy, correct, read = self.accelerator.gather_for_metrics(mine).view(-1, 4).sum(0).tolist()
        metrics["entropy"].append(entropy / max(1.0, tokens))
        metrics["mean_token_accuracy"].append(correct / max(1.0, tokens))
        self._total_train_tokens += int(read) // self.get_tp_size()
        metrics["num_tokens"] = [self._total_train_tokens]
        if self.aux_loss_enabled:
            metrics["aux_loss"].append(self.accelerator.gather_for_metrics(outputs.aux_loss).mean().item())
