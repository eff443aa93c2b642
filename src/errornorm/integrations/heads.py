"""What a model does between its last hidden states and its logits, and whether we know it.

The output embedding is public; what happens to its output is not. Known cases are read from the configuration. Then
true rows of logits are compared with ours: a head that is not what it seems is refused by name, never trained on.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..head import Head

MULTIPLIERS = ("logit_scale", "output_multiplier", "lm_head_multiplier")  # logits are multiplied by these
DIVISORS = ("logits_scaling",)
SOFTCAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
ROUTER = ("router_aux_loss_coef", "aux_loss_coef")  # weights of the loss of a mixture of experts
ROWS = "unpadded_vocab_size"  # of a weight that has more of them
TOLERANCE = 1e-4  # of the logits, beside the rounding of their type
PLAIN = nn.Linear.forward
SHIFTS = {"loss_function", "shift_logits", "shift_labels"}  # names in the forward of a model that shifts labels itself
SCORES = {"CrossEntropyLoss", "cross_entropy", "pred_layer"}  # and of one that computes a loss
TENSORS = ("Tensor", "Parameter", "DTensor")  # DTensor: FSDP's, gathered before use
HARMLESS = ("errornorm.", "trl.models.activation_offloading.")  # hooks from there leave the values alone
PATCHES = {"liger": "Liger", "unsloth": "Unsloth", "trl": "TRL"}  # by the module that a patched forward comes from


@dataclass(frozen=True, slots=True)
class HeadView:
    """The head of a model as `RobustLoss` needs it."""

    inner: Any  # the model itself, without adapters around it
    module: Any  # its output embedding
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
        if type(weight).__name__ not in TENSORS:
            return f"the head's weight is quantised, or no ordinary tensor ({type(weight).__name__})"
        if kind.forward is not PLAIN:
            return f"the head is not a plain linear layer ({where})"
        if "forward" in vars(self.module):
            return "the head's forward was replaced"
        if (hook := _foreign_hook(self.module)) is not None:
            return f"the head has a hook, and what that does is not known here ({hook})"
        learned = [n for n in (*MULTIPLIERS, *DIVISORS, *SOFTCAPS) if isinstance(self._setting(n), Tensor)]
        return f"the model's {learned[0]} is a tensor, which may be learned" if learned else None

    def describe(self) -> dict[str, Any]:
        """The arguments of `RobustLoss` that describe this head."""
        weight, bias = self.module.weight, self.module.bias
        after = getattr(self.inner, "final_logits_bias", None)  # BART and its relatives add it behind the head
        if isinstance(after, Tensor):
            bias = after.flatten() if bias is None else bias + after.flatten()
        rows = self._setting(ROWS)
        if rows is not None and rows < len(weight):
            weight, bias = weight[:rows], None if bias is None else bias[:rows]
        return {"weight": weight, "bias": bias, "scale": self._scale, "softcap": self._softcap}

    def _setting(self, name: str) -> Any:
        found = getattr(self.inner, name, None)
        return getattr(self.config, name, None) if found is None else found

    @property
    def _scale(self) -> float:
        up, down = ([x for x in map(self._setting, n) if isinstance(x, int | float)] for n in (MULTIPLIERS, DIVISORS))
        return math.prod(up) / math.prod(down)

    @property
    def _softcap(self) -> float | None:
        return next((float(cap) for cap in map(self._setting, SOFTCAPS) if cap), None)

    def check(self, hidden: Tensor, true: Tensor, dtype: torch.dtype | None = None, node: Any = None) -> None:
        """Compare our logits of a few positions with the model's own, and raise ValueError if they differ.

        `dtype` is what the head computed in: under autocast it has fewer bits than `hidden`. `node` is where the graph
        of its output begins: what is learned behind the head, but starts out without effect, shows only there.
        """
        dtype = dtype or max(hidden.dtype, true.dtype, key=lambda d: torch.finfo(d).eps)
        with torch.no_grad(), torch.autocast(true.device.type, enabled=False):
            head: Any = {k: v.to(dtype) if isinstance(v, Tensor) else v for k, v in self.describe().items()}
            ours = Head(**head).logits(hidden.to(dtype)).to(true.dtype).float()
            problem = _difference(ours, true.detach().float(), torch.finfo(dtype).eps)
        problem = problem or self._learned_behind(true, node)
        if problem is not None:
            raise ValueError(
                f"the logits of {self.name} are not those of its head as its configuration describes it (scale "
                f"{self._scale:g}, soft-cap {self._softcap}): {problem}. Training on them would be wrong; "
                "use attach(..., level='logits'), which takes the model's own logits"
            )

    def _learned_behind(self, true: Tensor, node: Any) -> str | None:
        """A parameter that the logits depend on, other than through the head's output."""
        names = {parameter: name for name, parameter in self.inner.named_parameters()}
        seen, ahead = {node, None}, [true.grad_fn if node is not None else None]
        while ahead:
            here: Any = ahead.pop()
            if here in seen:
                continue
            seen.add(here)
            ahead += [before for before, _ in here.next_functions]
            name = names.get(getattr(here, "variable", None))
            if name not in (None, "final_logits_bias"):
                return f"they depend on {name} past the head (something learned follows it)"
        return None

    def router_loss(self, outputs: Any) -> Tensor | None:
        """Mixture-of-experts models add a loss of their own to the likelihood; without labels they leave it to us."""
        found = dict(outputs) if hasattr(outputs, "keys") else {}
        weight = next(filter(None, map(self._setting, ROUTER)), None)
        if any(found.get(f"{side}_router_logits") is not None for side in ("encoder", "decoder")):
            raise ValueError(f"{self.name}'s own loss of its routers is not known here: leave out output_router_logits")
        aux = found.get("aux_loss")
        return aux * float(weight) if isinstance(aux, Tensor) and weight else None


def _foreign_hook(module: nn.Module) -> str | None:
    for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"):
        for hook in getattr(module, kind).values():
            function = getattr(hook, "func", hook)  # of a functools.partial
            name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
            if not name.startswith(HARMLESS):
                return name
    return None


def _difference(ours: Tensor, true: Tensor, eps: float) -> str | None:
    """How the true logits differ from ours, if by more than rounding."""
    if ours.shape != true.shape:
        return f"of shape {tuple(true.shape)}, not {tuple(ours.shape)} (a cut or padded vocabulary, a head run twice)"
    finite = ours.isfinite()
    difference = torch.where(ours == true, 0.0, true - ours)  # both may be -inf
    size = ours[finite].abs().max() if finite.any() else ours.new_ones(())
    off = float(difference.abs().max())
    # Rounding errors are independent of each other: all together they are smaller than the worst may be.
    if off <= (TOLERANCE + 8 * eps) * size and difference.norm() <= (TOLERANCE + eps) * ours[finite].norm():
        return None
    if not torch.equal(finite, true.isfinite()) or bool((true < -100 * size).any()):
        return "a part of the vocabulary is masked behind the head"
    return f"off by up to {off:.2g}, the largest being {float(size):.2g}: {_cause(ours, true, difference)}"


def _cause(ours: Tensor, true: Tensor, difference: Tensor) -> str:
    if bool(((true == 0) & (ours != 0)).any()):
        return "some are set to zero (dropout behind the head)"
    little = 0.3 * difference.norm()
    scale = (true * ours).sum() / (ours * ours).sum()
    if (true - scale * ours).norm() <= min(little, 0.3 * true.norm()):
        return f"they are {float(scale):.4g} times as large (a scale, a temperature)"
    rows, each = ours.flatten(0, -2), difference.flatten(0, -2)
    if (rows - rows[0]).norm() > 0.1 * rows.norm() and (each - each.mean(0)).norm() <= little:
        return "they differ by the same vector everywhere (a bias)"
    growth = difference * ours.sign()
    if bool((growth <= 0.1 * growth.abs().max()).all()) or bool((growth >= -0.1 * growth.abs().max()).all()):
        return f"the large ones are {'smaller (a soft-cap, a clamp)' if growth.sum() < 0 else 'larger (no soft-cap)'}"
    return "something else follows the head (a bias, a layer)"


def look_at(model: nn.Module) -> HeadView:
    """Find the head, or say why there is none to attach to."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"attach needs a model, not a {type(model).__name__}")
    if isinstance(model, nn.parallel.DistributedDataParallel) or hasattr(model, "_orig_mod"):
        raise ValueError(f"attach before {type(model).__name__} wraps the model (or to its .module / ._orig_mod)")
    inner = without_adapters(model)
    module = getattr(inner, "get_output_embeddings", lambda: None)()
    if module is None:
        raise ValueError(
            f"{type(inner).__name__} has no output embedding (get_output_embeddings): attach needs a language model "
            "head; for a model of your own use RobustLoss"
        )
    config = inner.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    view = HeadView(inner, module, text, not shifts_labels(inner))
    if view._setting("z_loss_coefficient"):
        raise ValueError(f"{view.name} adds a loss by z_loss_coefficient, which is not known here: set it to 0")
    return view


def shifts_labels(model: nn.Module) -> bool:
    """Whether each label is what the position before predicts; not in encoder-decoders. Refused are other models whose
    positions predict their own labels."""
    inner = without_adapters(model)
    if getattr(inner.config, "is_encoder_decoder", False):
        return False
    if (how := _scores_in_place(inner)) is not None:
        raise ValueError(f"{type(inner).__name__} {how}, and they are shifted here: use RobustLoss")
    return True


def _scores_in_place(model: nn.Module) -> str | None:
    """What a model does that compares each position with its own label, not with the next one."""
    if getattr(model, "loss_type", None) == "ForMaskedLM":
        return "predicts masked tokens from labels in their places"
    forward = inspect.unwrap(type(model).forward)
    names = {*forward.__code__.co_names, *forward.__code__.co_varnames} if inspect.isfunction(forward) else set()
    # What others wrote may shift in its own way.
    if forward.__module__.startswith("transformers.") and names & SCORES and not names & SHIFTS:
        return "takes labels that are shifted already"
    return None


def without_adapters(model: nn.Module) -> Any:
    """The model itself, inside of what PEFT puts around it."""
    base: Any = getattr(model, "get_base_model", None)
    return base() if callable(base) else model


def patched_by(model: nn.Module) -> str | None:
    """Whose forward this is, if somebody replaced the model's own by a fused one."""
    forwards = [getattr(each, "forward", None) for each in (model, without_adapters(model))]
    origins = [getattr(getattr(f, "__func__", f), "__module__", None) or "" for f in forwards]
    return next((name for key, name in PATCHES.items() for origin in origins if origin.startswith(key)), None)
