"""What a model does between its last hidden states and its logits, and whether we know it.

The output embedding is public; what happens to its output is not. Known cases are read from the configuration. Then
true rows of logits are compared with ours: a head that is not what it seems is refused by name, never trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..head import Head

MULTIPLIERS = ("logit_scale", "output_multiplier", "lm_head_multiplier")  # logits are multiplied by these
DIVISORS = ("logits_scaling",)
SOFTCAPS = ("final_logit_softcapping",)
TOLERANCE = 1e-4  # of the largest logit
PATCHES = {"liger": "Liger", "unsloth": "Unsloth", "trl": "TRL"}  # by the module that a patched forward comes from


@dataclass(frozen=True, slots=True)
class HeadView:
    """The head of a model as `RobustLoss` needs it."""

    inner: nn.Module  # the model itself, without adapters around it
    module: nn.Module  # its output embedding
    config: Any  # of the part that writes text
    encoder_decoder: bool

    @property
    def name(self) -> str:
        return type(self.inner).__name__

    @property
    def obstacle(self) -> str | None:
        """Why the weight alone does not say what this head computes, if so."""
        kind = type(self.module)
        where = f"{kind.__module__}.{kind.__qualname__}"
        if hasattr(self.module, "parametrizations"):
            return f"the head's weight is parametrized ({where})"
        if "peft" in kind.__module__ or hasattr(self.module, "base_layer"):
            return f"the head carries an adapter ({where})"
        weight = getattr(self.module, "weight", None)
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            return f"the head is quantised, or has no weight of its own ({where})"
        if kind is not nn.Linear:
            return f"the head is not a plain linear layer ({where})"
        if "forward" in vars(self.module):
            return "the head's forward was replaced"
        return None

    def describe(self) -> dict[str, Any]:
        """The arguments of `RobustLoss` that describe this head."""
        bias: Any = self.module.bias
        after = getattr(self.inner, "final_logits_bias", None)  # BART and its relatives add it behind the head
        if isinstance(after, Tensor):
            bias = after.flatten() if bias is None else bias + after.flatten()
        return {"weight": self.module.weight, "bias": bias, "scale": self._scale, "softcap": self._softcap}

    @property
    def _scale(self) -> float:
        def factor(name: str) -> float:
            found = getattr(self.inner, name, None)
            if found is None:
                found = getattr(self.config, name, None)
            return 1.0 if found is None else float(found)

        scale = 1.0
        for name in MULTIPLIERS:
            scale *= factor(name)
        for name in DIVISORS:
            scale /= factor(name)
        return scale

    @property
    def _softcap(self) -> float | None:
        found = [getattr(self.config, name, None) for name in SOFTCAPS]
        return next((float(cap) for cap in found if cap), None)

    def check(self, hidden: Tensor, true: Tensor) -> None:
        """Compare our logits of a few positions with the model's own."""
        if true.shape[:-1] != hidden.shape[:-1]:
            raise ValueError(
                f"{self.name} gave logits of shape {tuple(true.shape)} for hidden states of {tuple(hidden.shape)}: "
                "something between them is not known here; use attach(..., level='logits')"
            )
        with torch.no_grad(), torch.autocast(true.device.type, enabled=False):
            ours = Head(**self.describe()).logits(hidden)[..., : true.shape[-1]].to(true.dtype).float()
            true = true.float()
            rounding = 8 * torch.finfo(hidden.dtype).eps
            size = ours[ours.isfinite()].abs().max().clamp_min(1e-6) if ours.isfinite().any() else ours.new_ones(())
            same_mask = torch.equal(ours == -torch.inf, true == -torch.inf)
            off = ((ours - true).nan_to_num(0.0).abs().max() / size) if same_mask else ours.new_tensor(torch.inf)
        if ours.shape != true.shape or not off <= TOLERANCE + rounding:
            raise ValueError(self._suspect(ours, true, float(off)))

    def _suspect(self, ours: Tensor, true: Tensor, off: float) -> str:
        """Say what the difference looks like."""
        given = f"scale {self._scale:g}, soft-cap {self._softcap}"
        return (
            f"the logits of {self.name} are not those of its head as its configuration describes it ({given}), off by "
            f"{off:.2g} of the largest: {_cause(ours, true)}. Training on them would be wrong; "
            "use attach(..., level='logits'), which takes the model's own logits"
        )

    def router_loss(self, outputs: Any) -> Tensor | None:
        """Mixture-of-experts models add a loss of their own to the likelihood; without labels they leave it to us."""
        aux = outputs.get("aux_loss") if hasattr(outputs, "get") else None
        weight = getattr(self.inner, "router_aux_loss_coef", None)
        weight = getattr(self.config, "router_aux_loss_coef", None) if weight is None else weight
        return aux * float(weight) if isinstance(aux, Tensor) and weight else None


def _cause(ours: Tensor, true: Tensor) -> str:
    if not torch.equal(ours.isfinite(), true.isfinite()):
        return "a part of the vocabulary is masked behind the head"
    big = ours.abs() > 0.1 * ours.abs().max()
    ratio = (true / ours)[big]
    scale = ratio.median()
    if ((ratio / scale - 1).abs() < 1e-2).all():
        return f"they are {float(scale):.4g} times as large (a scale, a temperature)"
    if bool((true.abs() <= ours.abs() + 1e-6).all()) and bool((true * ours >= 0).all()):
        return "the large ones are smaller (a soft-cap, a clamp)"
    difference = (true - ours).flatten(0, -2)
    spread = (difference - difference[:1]).abs().max()
    if len(difference) > 1 and spread <= 1e-2 * difference.abs().max():
        return "they differ by the same vector everywhere (a bias)"
    return "something else follows the head, or the head was changed by a hook"


def look_at(model: nn.Module) -> HeadView:
    """Find the head, or say why there is none to attach to."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"attach needs a model, not a {type(model).__name__}")
    if isinstance(model, nn.parallel.DistributedDataParallel) or hasattr(model, "_orig_mod"):
        wrapper = type(model).__name__
        raise ValueError(f"attach to the model before it is wrapped in {wrapper} (or to its .module / ._orig_mod)")
    base: Any = getattr(model, "get_base_model", None)
    inner: Any = base() if callable(base) else model
    getter: Any = getattr(inner, "get_output_embeddings", None)
    module = getter() if callable(getter) else None
    if module is None:
        raise ValueError(
            f"{type(inner).__name__} has no output embedding (get_output_embeddings): attach needs a language model "
            "head; for a model of your own use RobustLoss"
        )
    config = inner.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    return HeadView(inner, module, text, bool(getattr(config, "is_encoder_decoder", False)))


def patched_by(model: nn.Module) -> str | None:
    """Whose forward this is, if somebody replaced the model's own by a fused one."""
    forward = getattr(model, "forward", None)
    function = getattr(forward, "__func__", forward)
    origin = (getattr(function, "__module__", "") or "").split(".")[0]
    return next((name for key, name in PATCHES.items() if origin.startswith(key)), None)
