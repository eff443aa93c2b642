"""Keep an eye on a training run: whether the objective runs, whether steps are taken, whether numbers are finite."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from .. import ranks
from ..head import finest
from ..loss import LossTerms

IDLE = 200  # training batches in which no token came above a threshold before we say so
log = logging.getLogger("errornorm")


class Watch:
    """What was seen of a run so far."""

    def __init__(self) -> None:
        self.batches = 0  # with the objective
        self.bypassed = False  # somebody called backward on logits that the objective never saw
        self.told = False  # somebody calls `advance`
        self.failed: list[str] = []  # what was not finite since the last step
        self.kept = False  # since the last step a batch kept a token
        self._backward = False  # somebody called it since the last step
        self._versions: int | None = None  # of the parameters
        self._sum: float | None = None  # of the smallest one: fused optimizers do not count their changes
        self._counted = False  # an optimizer's step changes these
        self._highest = 0.0  # error norm
        self._quiet = True  # nothing was ever dropped

    def on_bypass(self, grad: Tensor) -> None:
        self.bypassed = True

    def on_backward(self, grad: Tensor) -> None:
        self._backward = True

    def stepped(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether an optimizer took a step since the last batch. Nobody tells us, so look."""
        own = [p for p in parameters if p.requires_grad]
        versions = sum(p._version for p in own)
        changed, self._versions = self._versions is not None and versions != self._versions, versions
        total = float(finest(_local(min(own, key=Tensor.numel).detach())).sum()) if own else 0.0
        moved, self._sum = self._sum is not None and total != self._sum, total
        if not self._backward:
            return False
        self._counted |= changed
        # A step that moved nothing (a learning rate of 0) shows in gradients that were cleared.
        left = self._counted or not self.kept or any(p.grad is not None and bool(p.grad.any()) for p in own)
        stepped = changed or moved or not left
        self._backward, self.kept = not stepped, self.kept and not stepped
        return stepped

    def warn_if_idle(self, terms: LossTerms, threshold: float | None, steps: int) -> None:
        """Say once that a threshold seems to be out of reach."""
        if threshold is None or terms.cutoff is None or not self._quiet:
            return
        self._quiet = terms.num_kept == terms.num_tokens
        if not terms.num_tokens:
            return
        norms = terms.stats.error_norm[terms.counted].float()
        self._highest = max(self._highest, float(norms.max()))
        if self._quiet and steps > 0 and self.batches >= IDLE:
            self._quiet = False
            log.warning(
                "no token came above the threshold %g in %d batches; the highest error norm was %.3f. It may be out "
                "of reach (label smoothing, a temperature, much noise, a model at its beginning): above %.2f is 1 %%",
                threshold, self.batches, self._highest, float(norms.quantile(0.99)),
            )  # fmt: skip


def bad_gradients(model: nn.Module) -> str | None:
    """Which gradients are not finite, if any."""
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    bad = [name for name, grad in named if not _local(grad).isfinite().all()]
    if len(bad) == len(named) > 1:
        return f"all {len(named)} gradients (clipping spreads a single one to all of them)"
    return f"{len(bad)} of {len(named)} gradients, the first is that of {bad[0]}" if bad else None


def bad_weight(model: nn.Module) -> str | None:
    """The first parameter that is not finite, if any."""
    return next((name for name, p in model.named_parameters() if not _local(p.detach()).isfinite().all()), None)


def _local(grad: Tensor) -> Tensor:
    local = getattr(grad, "to_local", None)  # a rank's part, under FSDP
    out = grad if local is None else local()
    assert isinstance(out, Tensor)
    return out


def anywhere(flag: bool) -> bool:
    """Whether it is so on any rank: all must take a step, or none."""
    return bool(ranks.add(torch.tensor([int(flag)], device="cpu")).item())
