"""A text as a model reads it, with the place of each scored token in it.

A token's place is its half-open range of characters in the scored text. The end token stands behind the text, with an
empty range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..evaluation.encode import IGNORED, encode, letters_from, padded

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """What goes in, and which of it is scored.

    Args:
        inputs: Encoder-decoder: the tokens of the source. Causal: what the targets are predicted from.
        targets: Tokens that the model predicts.
        first: How many targets stand before the scored ones.
        places: Of the scored tokens.
    """

    inputs: list[int]
    targets: list[int]
    first: int
    places: list[Place]

    @property
    def scored(self) -> list[int]:
        return self.targets[self.first :]

    @property
    def size(self) -> int:
        """What it takes of a batch."""
        return max(len(self.inputs), len(self.targets))


class Encoder:
    """Args:
    model: Encoder-decoder or causal.
    tokenizer: Its own; a fast one, which knows where its tokens are.
    length: Most tokens that the model reads at once.
    """

    def __init__(self, model: Any, tokenizer: Any, length: int) -> None:
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} does not know where its tokens stand in the text: use a fast tokenizer"
            )
        self.tokenizer, self.length = tokenizer, length
        self.encoder_decoder = bool(model.config.is_encoder_decoder)
        self.vocab = int(model.get_input_embeddings().weight.shape[0])
        begin = tokenizer.bos_token_id
        self.start = tokenizer.eos_token_id if begin is None else begin
        pads = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
        self.pad = int(next(pad for pad in pads if pad is not None))  # any will do: it is masked

    def encode(self, contexts: Sequence[str], texts: Sequence[str]) -> list[Encoded | str]:
        """Contexts are the sources, or what stands before a text without being scored. A text says why it cannot be."""
        if not texts:
            return []
        return self._pairs(contexts, texts) if self.encoder_decoder else self._texts(contexts, texts)

    def batch(self, rows: Sequence[Encoded]) -> dict[str, Tensor]:
        """Padded on the right: what comes behind does not change what is scored."""
        inputs, mask = padded([row.inputs for row in rows], self.pad)
        if (largest := int((inputs * mask).max())) >= self.vocab:
            raise ValueError(
                f"the tokenizer gives token {largest}, and the model knows {self.vocab}: they do not belong together"
            )
        targets, _ = padded([row.targets for row in rows], IGNORED)
        begins = torch.tensor([row.first for row in rows]).unsqueeze(1)
        scored = (targets != IGNORED) & (torch.arange(targets.shape[1]) >= begins)
        return {"input_ids": inputs, "attention_mask": mask, "targets": targets, "scored": scored}

    def _pairs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Encoded | str]:
        read = encode(self.tokenizer, sources, cut=self.length)
        written = self.tokenizer(
            text_target=list(targets), return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
        )
        end = self.tokenizer.eos_token_id
        columns = (written[name] for name in ("input_ids", "offset_mapping", "special_tokens_mask"))
        out: list[Encoded | str] = []
        for source, text, row, offsets, added in zip(read, targets, *columns, strict=True):
            if row[-1:] != [end]:
                row, offsets, added = [*row, end], [*offsets, (0, 0)], [*added, 1]
            # Not by the tokens' numbers: the unknown token is a special one too, and stands for characters.
            first = next(i for i, ours in enumerate(added) if not ours or i == len(row) - 1)
            behind = (len(text), len(text))
            places = [behind if ours else place for ours, place in zip(added[first:], offsets[first:], strict=True)]
            if len(row) > self.length:
                out.append(f"more than the model writes ({len(row)} tokens, and {self.length} at most)")
            else:
                out.append(Encoded(source, row, first, _trimmed(places, text)))
        return out

    def _texts(self, contexts: Sequence[str], texts: Sequence[str]) -> list[Encoded | str]:
        whole = [context + text for context, text in zip(contexts, texts, strict=True)]
        found = self.tokenizer(whole, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        out: list[Encoded | str] = []
        for row, offsets, context, text in zip(
            found["input_ids"], found["offset_mapping"], contexts, texts, strict=True
        ):
            before = len(context)
            first = next((i for i, (_, end) in enumerate(offsets) if end > before), len(row))
            inputs, targets = [self.start, *row[:-1]], row
            if self.start is None:  # then nothing predicts the first token
                inputs, targets, first, offsets = row[:-1], row[1:], max(0, first - 1), offsets[1:]
            places = [(max(0, start - before), end - before) for start, end in offsets[first:]]
            if not places:
                out.append("no token to score")
            else:
                out.append(Encoded(inputs, targets, first, _trimmed(places, text)))
        return out


def _trimmed(places: list[Place], text: str) -> list[Place]:
    return [(letters_from(text, start, end), end) for start, end in places]


def windows(row: Encoded, length: int) -> Iterator[Encoded]:
    """A causal row that is too long, in parts, in order; before each the model sees half of its length at least.

    The last part sees as much before it as there is room for.
    """
    if len(row.targets) <= length:
        yield row
        return
    done, total = row.first, len(row.targets)
    while done < total:
        begin = max(0, done - max(length // 2, length - (total - done)))
        end = min(total, begin + length)
        places = row.places[done - row.first : end - row.first]
        yield Encoded(row.inputs[begin:end], row.targets[begin:end], done - begin, places)
        done = end
