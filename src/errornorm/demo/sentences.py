"""Training sentences as a model sees them: the error norm, the loss and its own choice at each token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ..batch import token_stats
from ..training import use
from ..training.rundir import RunDir, read_rows
from .parts import Sentence, Token

SHOWN = 5  # of each kind
WORDS = range(6, 15)  # of a sentence that fits the page


def sentences(run: RunDir, train: Path) -> list[Sentence]:
    """Copies and clean pairs of the training data under the model of a run, with what its objective would drop."""
    saved = use.load(run.path)
    cutoffs = [row["cutoff"] for row in read_rows(run.metrics) if row.get("cutoff") is not None]
    cutoff = sorted(cutoffs[-20:])[len(cutoffs[-20:]) // 2] if cutoffs else float("inf")
    chosen: dict[str, list[dict[str, Any]]] = {"untranslated": [], "clean": []}
    with train.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            kind = chosen.get(row["noise"])
            if kind is not None and len(kind) < SHOWN and len(row["target"].split()) in WORDS:
                kind.append(row)
    # Turn about: a reader who looks at two sees one of each.
    rows = [row for pair in zip(*chosen.values(), strict=False) for row in pair]
    return [_seen(saved, row, cutoff) for row in rows]


@torch.no_grad()
def _seen(saved: use.Saved, row: dict[str, Any], cutoff: float) -> Sentence:
    tokenizer, model = saved.tokenizer, saved.model.eval()
    inputs = tokenizer(saved.prefix + row["source"], return_tensors="pt")
    labels = torch.tensor([tokenizer(text_target=row["target"])["input_ids"]])
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).logits[0]
    stats = token_stats(logits=logits, targets=labels[0])
    noisy = row["noise"] != "clean"
    tokens = [
        Token(
            text=_text(tokenizer, label),
            norm=float(norm),
            nll=float(nll),
            dropped=float(norm) > cutoff,
            best=_text(tokenizer, best),
            noisy=noisy,
        )
        for label, best, norm, nll in zip(
            labels[0].tolist(), logits.argmax(-1).tolist(), stats.error_norm, stats.nll, strict=True
        )
    ]
    return Sentence(row["source"], tokens, "untranslated" if noisy else "clean")


def _text(tokenizer: Any, token: int) -> str:
    return "end" if token == tokenizer.eos_token_id else str(tokenizer.decode([token])).strip() or "␣"
