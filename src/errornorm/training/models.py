"""Models: from a preset or any transformers configuration, with new weights; or pretrained ones."""

from __future__ import annotations

import os
from typing import Any

from .. import specs
from .config import TrainConfig
from .presets import PRESETS, Kind


def build(config: TrainConfig, tokenizer: Any, seed: int) -> Any:
    """The model of a run. Equal seeds give equal weights."""
    import transformers

    transformers.set_seed(seed)
    if config.model.pretrained is not None:
        model = load(config.model.pretrained, config.kind, **config.model.overrides)
        if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
            model.resize_token_embeddings(len(tokenizer))  # language tags
    else:
        model = _scratch(config, tokenizer)
    frozen = config.training.freeze
    for name, parameter in model.named_parameters():
        if any(name.startswith(prefix) for prefix in frozen):
            parameter.requires_grad_(False)
    if unused := [prefix for prefix in frozen if not any(n.startswith(prefix) for n, _ in model.named_parameters())]:
        raise ValueError(f"training.freeze: no parameter of {type(model).__name__} begins with {unused[0]!r}")
    _end_with(model, tokenizer)
    return model


def load(name: str, kind: Kind, **overrides: Any) -> Any:
    """A pretrained model, from a folder or by its name."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    try:
        about = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: no model there: {' '.join(str(error).split())[:200]}") from error
    if about.is_encoder_decoder != (kind == "seq2seq"):
        able = "translation or summarization" if about.is_encoder_decoder else "language-modeling"
        raise ValueError(f"{name} is a {about.model_type}, which is for {able}")
    _override(about, overrides)
    auto = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    return auto.from_pretrained(name, config=about, dtype="float32")


def _scratch(config: TrainConfig, tokenizer: Any) -> Any:
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    entries = dict(config.model.config or PRESETS[config.model.preset or "tiny"][config.kind])
    name = entries.pop("model_type")
    if name not in CONFIG_MAPPING:
        raise ValueError(f"model.config: unknown model_type {name!r}{specs.near(name, CONFIG_MAPPING)}")
    about = CONFIG_MAPPING[name]()
    ours = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id,
        "use_cache": True,
    }
    if config.kind == "seq2seq":
        ours |= {
            "decoder_start_token_id": tokenizer.pad_token_id,
            "forced_eos_token_id": None,
            "is_encoder_decoder": True,
        }
        ours |= {"decoder_vocab_size": len(tokenizer)} if hasattr(about, "decoder_vocab_size") else {}
    for length in ("max_position_embeddings", "n_positions"):
        if hasattr(about, length) and length not in entries:
            ours[length] = max(config.data.max_length, config.evaluation.max_new_tokens) + 8
    for key, value in ours.items():
        setattr(about, key, value)
    _override(about, entries | config.model.overrides)
    if about.is_encoder_decoder != (config.kind == "seq2seq"):
        raise ValueError(f"model.config: a {name} cannot do {config.task}")
    auto: Any = AutoModelForSeq2SeqLM if config.kind == "seq2seq" else AutoModelForCausalLM
    return auto.from_config(about)


def _override(about: Any, entries: dict[str, Any]) -> None:
    known = {*about.to_dict(), *getattr(about, "attribute_map", {})}
    for key, value in entries.items():
        if key not in known:
            raise ValueError(f"model: a {about.model_type} configuration has no {key!r}{specs.near(key, known)}")
        setattr(about, key, value)


def _end_with(model: Any, tokenizer: Any) -> None:
    """Generation ends with the tokenizer's end token, and is set by us, not by a model's own beams and lengths."""
    about = model.generation_config
    about.eos_token_id = about.eos_token_id or tokenizer.eos_token_id
    about.pad_token_id = tokenizer.pad_token_id


def quiet() -> None:
    """The libraries' own progress bars and advice would break ours."""
    from transformers.utils import logging

    about: Any = logging
    about.set_verbosity_error()
    about.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
