"""TRL's supervised fine-tuning, with its metrics."""

from __future__ import annotations

from typing import Any

import torch

from ..loss import LossTerms
from ..objectives import Objective
from .heads import without_adapters
from .trainer import robust

try:
    from trl.trainer.sft_trainer import SFTTrainer as _SFTTrainer
except ImportError as error:
    raise ImportError("this adapter needs TRL: pip install errornorm[trl]") from error


class SFTTrainer(_SFTTrainer):
    """TRL's SFTTrainer, training with an objective. Evaluation is TRL's own: plain likelihood.

    Packing, padding-free batches, completion-only loss and PEFT work as in TRL. `handle` is what `attach` returned.

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
        parallel = self.accelerator.parallelism_config
        if parallel is not None and (parallel.cp_enabled or parallel.sp_enabled):
            raise ValueError("sequences that are split over processes (cp_size, sp_size) are not supported")
        more = attach_options or {}
        self.handle = robust(self, objective, **{**more, "statistics": {*more.get("statistics", ()), "margin"}})
        if self.aux_loss_enabled:  # TRL takes the coefficient from its arguments, a model from its own attribute
            without_adapters(self.handle.model).router_aux_loss_coef = self.router_aux_loss_coef

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if not (model.training and torch.is_grad_enabled()):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[no-untyped-call]
        more: dict[str, Any] = {"use_cache": False, "num_items_in_batch": num_items_in_batch}
        if self.aux_loss_enabled:
            more["output_router_logits"] = True
        before = self.handle.terms
        outputs = model(**{**inputs, **more})
        loss = outputs.loss
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        skipped = self.handle.terms is before  # a batch that was not finite leaves no terms
        self._record(inputs, None if skipped else self.handle.terms, outputs)
        return (loss, outputs) if return_outputs else loss

    def _record(self, inputs: dict[str, Any], terms: LossTerms | None, outputs: Any) -> None:
        """The metrics that TRL's users know, of all ranks."""
        read = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["position_ids"].numel()
        mine = [0.0, 0.0, 0.0, float(read)]
        if terms is not None:
            right = (terms.stats.margin >= 0) & terms.counted
            mine[:3] = [float(terms.num_tokens), float(terms.stats.entropy.sum()), float(right.sum())]
        sums = self.accelerator.reduce(torch.tensor(mine, device=self.accelerator.device), "sum")
        tokens, entropy, correct, everything = sums.tolist()
        metrics = self._metrics["train"]
        metrics["entropy"].append(entropy / max(1.0, tokens))
        metrics["mean_token_accuracy"].append(correct / max(1.0, tokens))
        self._total_train_tokens += int(everything) // self.get_tp_size()
        metrics["num_tokens"] = [self._total_train_tokens]
        if self.aux_loss_enabled:
            metrics["aux_loss"].append(self.accelerator.reduce(outputs.aux_loss.detach(), "mean").item())
