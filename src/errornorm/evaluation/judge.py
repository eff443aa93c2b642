"""What a model is worth on texts: its likelihood, and what its outputs are like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..near import near
from . import metrics
from .decode import generate
from .encode import by_length, encode, pairs
from .likelihood import likelihood

BY_TASK: dict[str, tuple[str, ...]] = {
    "translation": ("likelihood", "bleu", "chrf", "copies"),
    "summarization": ("likelihood", "rouge", "copies"),
    "language-modeling": ("likelihood",),
}
TOKENS = 4000  # of a batch, padding included


@dataclass(frozen=True, slots=True)
class Question:
    """How to evaluate.

    Args:
        names: Some of likelihood, bleu, chrf, rouge, copies.
        beams: Of the search.
        max_new_tokens: Longest output.
        max_length: Longest input; more is cut. Rows of text for language modelling are that long.
        limit: Evaluate on so many records.
        tokenize: Of BLEU.
        flores_model: For BLEU's flores200.
    """

    names: Sequence[str]
    beams: int = 5
    max_new_tokens: int = 128
    max_length: int = 256
    limit: int | None = None
    tokenize: str = "13a"
    flores_model: Path | None = None

    def __post_init__(self) -> None:
        """Before hours of generation, not after."""
        known = ("likelihood", *metrics.NAMES)
        for name in self.names:
            if name not in known:
                raise ValueError(f"unknown metric {name!r}{near(name, known)}; there are {', '.join(known)}")
        if self.tokenize not in metrics.TOKENIZERS:
            raise ValueError(f"unknown tokenizer {self.tokenize!r}; there are {', '.join(metrics.TOKENIZERS)}")
        if "bleu" in self.names:
            metrics.require_tokenizer(self.tokenize, self.flores_model)


@dataclass(slots=True)
class Verdict:
    """Numbers, the signatures of those that have one, and the outputs they were computed from."""

    values: dict[str, float] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    outputs: list[dict[str, str]] = field(default_factory=list)


def judge(
    model: Any,
    tokenizer: Any,
    texts: Sequence[Sequence[str]],
    question: Question,
    prefix: str = "",
    tell: Callable[[int], None] = lambda done: None,
) -> Verdict:
    """Evaluate on pairs of source and reference, or on documents.

    Args:
        model: Encoder-decoder or causal.
        tokenizer: Its own.
        texts: Pairs, or lists of one document.
        question: What to measure, and how.
        prefix: What the model reads before each source: a language tag, an instruction.
        tell: Called with the number of outputs, now and then.
    """
    texts = texts[: question.limit]
    read = [[prefix + source, *rest] for source, *rest in texts]
    wanted = [name for name in question.names if name != "likelihood"]
    if wanted and not model.config.is_encoder_decoder:
        raise ValueError(f"{wanted[0]}: a language model has no targets to compare outputs with; measure likelihood")
    verdict = Verdict({"num": len(texts)})
    if "likelihood" in question.names:
        found = likelihood(model, batches(model, tokenizer, read, question.max_length))
        verdict.values |= {"nll": found.nll, "perplexity": found.perplexity, "tokens": found.tokens}
    if wanted:
        outputs = generate(
            model, tokenizer, [source for source, _ in read], beams=question.beams, tell=tell,
            max_new_tokens=question.max_new_tokens, max_length=question.max_length,
        )  # fmt: skip
        sources, references = ([pair[i] for pair in texts] for i in (0, 1))
        values, verdict.signatures = metrics.measure(
            wanted, outputs, references, sources, tokenize=question.tokenize, flores_model=question.flores_model
        )
        verdict.values |= values | {"beams": question.beams}
        verdict.outputs = [
            {"source": source, "reference": reference, "output": output}
            for source, reference, output in zip(sources, references, outputs, strict=True)
        ]
    return verdict


def batches(model: Any, tokenizer: Any, texts: Sequence[Sequence[str]], length: int) -> Iterator[dict[str, Tensor]]:
    """As the model takes them. Documents are packed into rows, the last of which may be shorter."""
    if not model.config.is_encoder_decoder:
        yield from _rows(encode(tokenizer, [document for (document,) in texts]), length)
        return
    sources = encode(tokenizer, [source for source, _ in texts], cut=length)
    targets = encode(tokenizer, [target for _, target in texts], target=True, cut=length)
    sizes = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
    for batch in by_length(sizes, TOKENS):
        yield pairs([sources[i] for i in batch], [targets[i] for i in batch], tokenizer.pad_token_id)


def _rows(documents: Sequence[Sequence[int]], length: int) -> Iterator[dict[str, Tensor]]:
    flat = torch.tensor([token for document in documents for token in document])
    rest = len(flat) % length
    full, last = flat[: len(flat) - rest].view(-1, length), flat[len(flat) - rest :].view(1, -1)
    for part in (*full.split(max(1, TOKENS // length)), last):
        if part.numel() > 1:  # a single token is not predicted from anything
            yield {"input_ids": part, "labels": part}
