"""Models: from a preset or any transformers configuration, with new weights; or pretrained ones."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from ..data.lines import DataError
from ..data.visible import visible
from ..evaluation.decode import positions
from ..near import near
from .config import TrainConfig
from .presets import PRESETS, Kind
from .tokenizing import AGAIN, loading, place

DEEPEST = 10_000  # layers


def require(config: TrainConfig) -> None:
    """Refuse a model that cannot be, before the corpora are read."""
    if config.model.pretrained is not None:
        _described(config.model.pretrained, config.kind, config.model.download, config.model.overrides)
    else:
        _chosen(config)


def build(config: TrainConfig, tokenizer: Any, seed: int) -> Any:
    """The model of a run. Equal seeds give equal weights."""
    import transformers

    transformers.set_seed(seed)
    if config.model.pretrained is not None:
        model = load(config.model.pretrained, config.kind, config.model.download, **config.model.overrides)
        if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
            model.resize_token_embeddings(len(tokenizer))  # language tags
    else:
        model = _scratch(config, tokenizer)
    room, longest = positions(model), config.data.max_length
    if room is not None and room < longest:
        raise ValueError(f"data.max_length: {longest}, but the model has only {room} positions; lower it")
    _freeze(model, config.training.freeze)
    _end_with(model, tokenizer)
    return model


def load(name: str, kind: Kind, download: bool = False, **overrides: Any) -> Any:
    """A pretrained model, from a folder or by its name. No code that comes with it is run."""
    folder, about = _described(name, kind, download, overrides)
    for key, value in (_causal(about, kind) | overrides).items():
        setattr(about, key, value)
    remedy = "; check model.overrides" if overrides else AGAIN
    with loading(f"{name}: the model cannot be loaded", remedy):
        # A pickle (pytorch_model.bin) is read for its tensors only.
        model, found = _auto(kind).from_pretrained(
            folder, config=about, dtype="float32", weights_only=True, output_loading_info=True, **_careful(download)
        )
    if missing := sorted(found["missing_keys"]):
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        raise DataError(f"{name}: the model's files have no {missing[0]}{more}{remedy}")
    _refuse_not_finite(model, name)
    return model


def _described(name: str, kind: Kind, download: bool, overrides: dict[str, Any]) -> tuple[str, Any]:
    """Where a pretrained model is, and its configuration, if it can do this and have these entries."""
    from transformers import AutoConfig, PreTrainedConfig

    with loading(f"{name}: no model there", AGAIN):
        folder = place(name, download)
        _refuse_outside(Path(folder))
        _refuse_deep(PreTrainedConfig.get_config_dict(folder, **_careful(download))[0])
        about = AutoConfig.from_pretrained(folder, **_careful(download))
    if about.is_encoder_decoder != (kind == "seq2seq"):
        able = "translation or summarization" if about.is_encoder_decoder else "language-modeling"
        raise ValueError(f"{name} is a {about.model_type}, which is for {able}")
    _check_keys(about, overrides)
    return folder, about


def _careful(download: bool) -> dict[str, Any]:
    return {"trust_remote_code": False, "local_files_only": not download}


def _refuse_not_finite(model: Any, name: str) -> None:
    for key, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise FloatingPointError(f"{name}: NaN or Inf in {key}; use an earlier checkpoint, or get the folder again")


def _refuse_outside(folder: Path) -> None:
    """The list of a model's files may name others, which are not its own."""
    for path in sorted(folder.glob("*.index.json")):
        try:
            names = json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()
            outside = [name for name in names if PurePath(name).name != name]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: damaged ({error}): save the model again") from error
        if outside:
            raise DataError(f"{path}: it names {visible(outside[0])!r}, which is not beside it: save the model again")


def _refuse_deep(entries: dict[str, Any]) -> None:
    """A model that would never be built."""
    for key, value in entries.items():
        if isinstance(value, dict):
            _refuse_deep(value)
        if "layer" in key and isinstance(value, int) and value > DEEPEST:
            raise ValueError(f"{key} in its config.json is {value}, and more than {DEEPEST} layers are not built")


def _chosen(config: TrainConfig) -> tuple[Any, dict[str, Any]]:
    """The default configuration of a model with new weights, and the entries that are to differ."""
    from transformers import CONFIG_MAPPING

    entries = dict(config.model.config or PRESETS[config.model.preset or "tiny"][config.kind])
    name = entries.pop("model_type")
    if name not in CONFIG_MAPPING:
        raise ValueError(f"model.config: unknown model_type {name!r}{near(name, CONFIG_MAPPING)}")
    default = CONFIG_MAPPING[name]()
    able = type(default) in _auto(config.kind)._model_mapping and hasattr(default, "vocab_size")
    if not able or default.is_encoder_decoder != (config.kind == "seq2seq"):
        raise ValueError(f"model.config: a {name} cannot do {config.task}")
    entries |= config.model.overrides
    _check_keys(default, entries)
    return default, entries


def _scratch(config: TrainConfig, tokenizer: Any) -> Any:
    default, entries = _chosen(config)
    name, names = default.model_type, default.attribute_map
    entries = {names.get(key, key): value for key, value in (_ours(config, tokenizer, default) | entries).items()}
    where = "config" if config.model.config else "overrides"
    with loading(f"model.{where}: this {name} cannot be built", error_kind=ValueError):
        # Made anew, not changed: some entries follow from others, such as the size of the heads from their number.
        model = _auto(config.kind).from_config(type(default)(**entries))
    if (rows := model.get_input_embeddings().weight.shape[0]) < len(tokenizer):
        raise ValueError(f"model.config: vocab_size is {rows}, but the tokenizer has {len(tokenizer)} tokens")
    return model


def _ours(config: TrainConfig, tokenizer: Any, default: Any) -> dict[str, Any]:
    """Entries that follow from the tokenizer and the lengths."""
    pad, end, start = tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id
    ours = {
        "vocab_size": len(tokenizer),
        "pad_token_id": pad,
        "eos_token_id": end,
        "bos_token_id": end if start is None else start,
    }
    places = config.data.max_length
    if config.kind == "seq2seq":
        ours["decoder_start_token_id"] = pad
        places = max(places, config.evaluation.max_new_tokens) + 8  # some to spare
    special = {"max_position_embeddings": places, "decoder_vocab_size": len(tokenizer), "forced_eos_token_id": None}
    ours |= {key: value for key, value in special.items() if hasattr(default, key)}
    return ours | _causal(default, config.kind)


def _causal(about: Any, kind: Kind) -> dict[str, Any]:
    """A BERT would look ahead."""
    return {"is_decoder": True} if kind == "causal" and hasattr(about, "is_decoder") else {}


def _check_keys(about: Any, entries: dict[str, Any]) -> None:
    known = {*about.to_dict(), *about.attribute_map}
    for key in entries:
        if key not in known:
            raise ValueError(f"model: a {about.model_type} configuration has no {key!r}{near(key, known)}")


def _auto(kind: Kind) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM


def _freeze(model: Any, prefixes: Sequence[str]) -> None:
    for prefix in prefixes:
        found = [parameter for name, parameter in model.named_parameters() if name.startswith(prefix)]
        if not found:
            raise ValueError(f"training.freeze: no parameter of {type(model).__name__} begins with {prefix!r}")
        for parameter in found:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("training.freeze: nothing is left to learn")


def _end_with(model: Any, tokenizer: Any) -> None:
    """Generation ends with the end token that the model is trained on; a model's own may be another, or several."""
    about, end = model.generation_config, tokenizer.eos_token_id
    own = about.eos_token_id
    if end not in (own if isinstance(own, list) else [own]):
        about.eos_token_id = end
    about.pad_token_id = tokenizer.pad_token_id


def quiet() -> None:
    """The libraries' own progress bars and advice would break ours."""
    from transformers.utils import logging

    about: Any = logging
    about.set_verbosity_error()
    about.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
