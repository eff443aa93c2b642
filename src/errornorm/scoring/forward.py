"""What a model says about each token, without gradients and without logits.

The hidden states are taken where they enter the head, a single position goes through it, and the statistics come from
the fused kernel. Where the head is not a plain linear layer, the model's own logits are used.

Shapes: N scored tokens of a batch, in the order of its rows; K alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..batch import token_stats
from ..head import Head
from ..integrations.heads import look_at
from ..integrations.jobs import decoder_inputs
from ..stats import TokenStats

STATISTICS = ("error_norm", "entropy", "margin")
ROWS = 256  # whose logits are made at a time, to find alternatives


@dataclass(frozen=True, slots=True)
class Judged:
    """Args:
    stats: Of the scored tokens [N].
    targets: The tokens themselves [N].
    rows: What their logits are made of [N, D], or are [N, V].
    """

    stats: TokenStats
    targets: Tensor
    rows: Tensor


class Forward:
    """A model that scores.

    Args:
        model: Encoder-decoder or causal, on its device.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.view = look_at(model)
        self.fused = self.view.obstacle is None
        self._hidden: Tensor | None = None
        self._checked = False

    @torch.inference_mode()
    def __call__(self, batch: dict[str, Tensor]) -> Judged:
        device = next(self.model.parameters()).device
        targets, scored = batch["targets"].to(device), batch["scored"].to(device)
        inputs: dict[str, Any] = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        if self.view.encoder_decoder:
            inputs["decoder_input_ids"] = decoder_inputs(self.view.inner, targets)
        inputs["use_cache"] = False
        wanted = targets[scored]
        if not self.fused:
            rows = self.model(**inputs).logits[scored]
            return Judged(token_stats(logits=rows, targets=wanted, statistics=STATISTICS), wanted, rows)
        rows = self._states(inputs)[scored]
        stats = token_stats(hidden=rows, targets=wanted, statistics=STATISTICS, **self.view.describe())
        return Judged(stats, wanted, rows)

    def _states(self, inputs: dict[str, Any]) -> Tensor:
        hook = self.view.module.register_forward_pre_hook(self._tap)
        try:
            outputs = self.model(**inputs)
        finally:
            hook.remove()
            hidden, self._hidden = self._hidden, None
        if hidden is None:
            raise RuntimeError(f"{self.view.name} did not call its output head: another fused loss is in the way")
        if not self._checked:
            if outputs.logits.isnan().any():
                raise FloatingPointError(f"{self.view.name} gives no number: damaged weights, or too few bits for them")
            self.view.check(hidden[..., :1, :], outputs.logits)
            self._checked = True
        return hidden

    def _tap(self, head: Any, args: tuple[Any, ...]) -> Any:
        self._hidden = args[0]
        return args[0][..., :1, :], *args[1:]

    @torch.inference_mode()
    def alternatives(self, judged: Judged, which: Tensor, num: int) -> tuple[Tensor, Tensor, Tensor]:
        """For a few tokens: the rank of the target (1 is the best), and the best entries with their probabilities."""
        ranks, best, shares = [], [], []
        rows, targets = judged.rows[which], judged.targets[which]
        for part, wanted in zip(rows.split(ROWS), targets.split(ROWS), strict=True):
            logits = Head(**self.view.describe()).logits(part).float() if self.fused else part.float()
            own = logits.gather(1, wanted.unsqueeze(1))
            ranks.append((logits > own).sum(1) + 1)
            top = logits.topk(min(num, logits.shape[1]), 1)
            best.append(top.indices)
            shares.append((top.values - logits.logsumexp(1, keepdim=True)).exp())
        return torch.cat(ranks), torch.cat(best), torch.cat(shares)
