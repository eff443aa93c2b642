"""Texts as a model's tokens, and tokens as its inputs: the same in training and in evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import torch
from torch import Tensor

IGNORED = -100


def encode(tokenizer: Any, texts: Sequence[str], *, target: bool = False, cut: int | None = None) -> list[list[int]]:
    """Tokens of each text; the end token is the last, whether the tokenizer adds it or not.

    Args:
        tokenizer: With an end token.
        texts: What is read, or what is to be written.
        target: The latter: some tokenizers treat it as another language.
        cut: Longest, with the end token.
    """
    if not texts:
        return []
    key, end = "text_target" if target else "text", tokenizer.eos_token_id
    begins = int(tokenizer.bos_token_id == end)  # OPT's begin with the token that ends others
    ends = end in tokenizer(**{key: "a"})["input_ids"][begins:]
    options = {} if cut is None else {"truncation": True, "max_length": cut if ends else cut - 1}
    rows: list[list[int]] = tokenizer(**{key: list(texts)}, verbose=False, **options)["input_ids"]
    return rows if ends else [[*row, end] for row in rows]


def pairs(sources: Sequence[Any], targets: Sequence[Any], pad: int) -> dict[str, Tensor]:
    """A batch for an encoder-decoder."""
    inputs, mask = padded(sources, pad)
    return {"input_ids": inputs, "attention_mask": mask, "labels": padded(targets, IGNORED)[0]}


def padded(rows: Sequence[Any], value: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Rows of one length, and a mask of what was there before."""
    width = max(map(len, rows))
    tokens = torch.full((len(rows), width), value)
    mask = torch.zeros_like(tokens)
    for i, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        tokens[i, place], mask[i, place] = torch.from_numpy(numpy.asarray(row, numpy.int64)), 1
    return tokens, mask


def letters_from(text: str, start: int, end: int) -> int:
    """Where the letters of a token begin: behind the white space before them, unless that is all there is."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start


def by_length(sizes: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indexes in batches: items times the largest is within the budget, or the batch is one item.

    The largest come first: if memory does not suffice, it shows at once.
    """
    batch: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if batch and sizes[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
