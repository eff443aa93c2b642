"""Outputs of a model: beam search over batches of about equal length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .encode import by_length, encode, padded
from .likelihood import evaluating

TOKENS = 20_000  # of a batch: sequences times beams times the longest
SHORT = 32  # shorter inputs count as that long: their outputs need memory too


def generate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    beams: int = 5,
    max_new_tokens: int = 128,
    max_length: int | None = None,
    tell: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Translate, summarize, or continue each text, in order.

    Args:
        model: Encoder-decoder or causal.
        tokenizer: Its own.
        texts: As the model reads them.
        beams: 1 is greedy.
        max_new_tokens: Longest output. A causal model gives at most half of its positions to it.
        max_length: Longest input; more is cut (at the end; of a text to continue, at the beginning).
        tell: Called with the number of outputs, now and then.
    """
    if beams > (vocab := model.config.get_text_config(decoder=True).vocab_size):
        raise ValueError(f"beams={beams}: the model has only {vocab} tokens to go on with; give fewer beams")
    longest, new = _lengths(model, max_length, max_new_tokens)
    if model.config.is_encoder_decoder:
        rows = encode(tokenizer, texts, cut=longest)
    else:
        rows = _prompts(tokenizer, texts, longest)
    outputs, done = [""] * len(texts), 0
    with evaluating(model):
        for batch in by_length([beams * max(SHORT, len(row)) for row in rows], TOKENS):
            found = _search(model, tokenizer, [rows[i] for i in batch], beams, new)
            for i, text in zip(batch, found, strict=True):
                outputs[i] = text.strip()
            done += len(batch)
            tell(done)
    return outputs


def positions(model: Any) -> int | None:
    """How many tokens a model can tell the places of; None: any number, as those with relative positions."""
    room = getattr(model.config, "max_position_embeddings", None)
    return room if room is not None and room > 0 else None  # XLNet says -1


def _lengths(model: Any, longest: int | None, new: int) -> tuple[int | None, int]:
    """Of the inputs and of the outputs, within the model's positions; a causal model needs them for both."""
    room = positions(model)
    if room is None:
        return longest, new
    if model.config.is_encoder_decoder:
        return min(longest or room, room), min(new, room)
    new = min(new, room // 2)
    return min(longest or room, room - new), new


def _prompts(tokenizer: Any, texts: Sequence[str], longest: int | None) -> list[list[int]]:
    rows: list[list[int]] = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
    end = tokenizer.eos_token_id
    start = end if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    rows = [row[:-1] if row[-1:] == [end] else row for row in rows]  # to be continued
    return [(row or [start])[-(longest or 0) :] for row in rows]


@torch.no_grad()
def _search(model: Any, tokenizer: Any, rows: list[list[int]], beams: int, new: int) -> list[str]:
    causal = not model.config.is_encoder_decoder
    inputs, mask = padded(rows, tokenizer.pad_token_id, left=causal)
    found = model.generate(
        input_ids=inputs.to(model.device),
        attention_mask=mask.to(model.device),
        num_beams=beams,
        do_sample=False,
        early_stopping=beams > 1,
        max_new_tokens=new,
    )
    written = found[:, inputs.shape[1] :] if causal else found
    texts: list[str] = tokenizer.batch_decode(written, skip_special_tokens=True)
    return texts
