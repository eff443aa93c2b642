"""What a training batch brings along for the objective, taken from the arguments of a model's forward.

Shapes: B sequences, T positions, D hidden size.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..loss import LossTerms
from .telemetry import Sources

COLUMNS = ("ref_nll", "token_weight", "sequence_ids")  # a batch may bring these along, in the shape of the labels
IGNORED = -100  # what models and trainers take for no label
SOURCE = "source"  # and where each of its sequences comes from


@dataclass(slots=True)
class Job:
    """One forward pass under way."""

    targets: Tensor  # [B, T] already shifted
    count: Tensor | int | None  # tokens of the whole optimizer step, if the trainer says so
    columns: dict[str, Tensor]
    sources: Sources | None
    hidden: Tensor | None = None
    first: Tensor | None = None  # [B, 1, D] what did go through the head
    dtype: torch.dtype | None = None  # of what came out
    node: Any = None  # where the graph of that begins
    terms: LossTerms | None = None

    @staticmethod
    def take(kwargs: dict[str, Any], extra: dict[str, Any], model: nn.Module) -> Job:
        """Take labels and count away from the model; an encoder-decoder gets decoder inputs for them."""
        labels, shifted = kwargs.pop("labels"), kwargs.pop("shift_labels", None)
        if kwargs.pop("logits_to_keep", 0):
            raise ValueError("logits_to_keep leaves out positions that have labels: do not pass it in training")
        if "use_cache" in inspect.signature(model.forward).parameters:  # without labels it would make one, for nothing
            kwargs.setdefault("use_cache", False)
        columns = {name: extra[name] for name in COLUMNS if extra.get(name) is not None}
        sources = extra.get(SOURCE)
        config: Any = model.config
        if config.is_encoder_decoder:
            if kwargs.get("decoder_input_ids") is None and kwargs.get("decoder_inputs_embeds") is None:
                kwargs["decoder_input_ids"] = decoder_inputs(model, labels)
            targets = labels
        else:
            if "sequence_ids" not in columns and (packed := _packed(kwargs, labels)) is not None:
                columns["sequence_ids"] = packed
            targets = shifted if shifted is not None else F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
            columns = {name: F.pad(column, (0, 1))[..., 1:] for name, column in columns.items()}
            if isinstance(sources, Tensor) and sources.shape == labels.shape:
                sources = F.pad(sources, (0, 1))[..., 1:]
        return Job(targets, kwargs.pop("num_items_in_batch", None), columns, sources)


def part_of_step(terms: LossTerms, count: Tensor | int | None, router: Tensor | None = None) -> Tensor:
    """What to call backward on: this batch's part of the mean of a step of so many tokens (None: of this batch)."""
    total = terms.total
    if terms.normalize == "kept":
        total = total * (terms.num_tokens / max(1, terms.num_kept))
    if router is not None:  # its part of the step is that of its tokens
        total = total + router.to(total.device) * terms.num_tokens
    count = torch.as_tensor(terms.num_tokens if count is None else count, device=total.device)
    return total / count.where(count > 0, 1)  # a share of a step may be less than a token


def share_of_step(kwargs: dict[str, Any], encoder_decoder: bool) -> Tensor | None:
    """Take the number of tokens of a whole step away from an evaluated model, and say which share of them it has.

    Some models do nothing with the number, and the trainer takes their mean for a part of one; some do not accept it.
    """
    count = kwargs.pop("num_items_in_batch", None)
    if count is None:
        return None
    labels, targets = kwargs["labels"], kwargs.get("shift_labels")
    if targets is None:
        targets = labels if encoder_decoder else labels[..., 1:]  # a causal model never predicts the first token
    share: Tensor = targets.ne(IGNORED).sum() / torch.as_tensor(count, device=labels.device)
    return share


def _packed(kwargs: dict[str, Any], labels: Tensor) -> Tensor | None:
    """[B, T] the number of each position's sequence, in whatever way a batch says that its rows hold several."""
    numbers, ends, places = (kwargs.get(name) for name in ("seq_idx", "cu_seq_lens_q", "position_ids"))
    if isinstance(numbers, Tensor) and numbers.shape == labels.shape:
        return numbers
    if isinstance(ends, Tensor) and len(labels) == 1:
        return torch.searchsorted(ends, torch.arange(labels.shape[-1], device=ends.device), right=True)[None]
    if isinstance(places, Tensor) and places.shape in (labels.shape, labels[:1].shape):
        return (places == 0).cumsum(-1).expand_as(labels)  # a sequence begins at position 0
    return None


def decoder_inputs(model: nn.Module, labels: Tensor) -> Tensor:
    """Labels shifted right, by the model's own rule."""
    config: Any = model.config
    start, pad = (getattr(config, name, None) for name in ("decoder_start_token_id", "pad_token_id"))
    own: Callable[..., Tensor] | None = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    shift: Any = getattr(importlib.import_module(type(model).__module__), "shift_tokens_right", None)
    if own is not None and (start is None or pad is None):  # it may know better
        with suppress(Exception):
            return own(labels=labels.clone())
    if start is None or pad is None or (own is None and shift is None):
        missing = "decoder_start_token_id" if start is None else "pad_token_id" if pad is None else "rule for them"
        raise ValueError(
            f"{type(model).__name__} cannot make decoder inputs of labels, it has no {missing}: set it, or pass "
            "decoder_input_ids with the batch"
        )
    labels = labels.clone()  # some rules change them
    out = own(labels=labels) if own is not None else shift(labels, pad, start)
    assert isinstance(out, Tensor)
    return out


def shared(outputs: Any, share: Tensor) -> Any:
    """A model's outputs, with this share of their loss."""
    named = hasattr(outputs, "keys")
    loss = outputs["loss"] if named else outputs[0]
    share = share.to(loss.device)
    part = torch.where(share == 0, 0.0, loss * share)  # the mean of no tokens is NaN, and no part of one
    return with_loss(outputs if named else outputs[1:], part)


def with_loss(outputs: Any, loss: Tensor) -> Any:
    """A model's outputs, with this loss in front."""
    if not hasattr(outputs, "keys"):
        return (loss, *outputs)
    rest = {name: value for name, value in outputs.items() if name != "loss"}
    return type(outputs)(loss=loss, **rest)
