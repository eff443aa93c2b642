"""Table 6: sentences whose tokens are marked by their error norm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from errornorm.batch import token_stats
from errornorm.training import use

READ, SHOWN = 200, 8  # sentences of the corpus; those with the largest error norms of them


def sentences(saved: use.Saved, parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sentences with the largest error norms among the first of a corpus, of each direction if it has several."""
    seen = []
    for part in parts:
        _, _, language = part.get("languages", "").partition("-")
        before = saved.before(language or None)
        with Path(part["path"]).open(encoding="utf-8") as file:
            rows = [json.loads(line) for line, _ in zip(file, range(READ), strict=False)]
        seen += [_seen(saved, before, row) for row in rows]
    return sorted(seen, key=lambda sentence: -max(norm for _, norm in sentence["tokens"]))[:SHOWN]


@torch.no_grad()
def _seen(saved: use.Saved, before: str, row: dict[str, Any]) -> dict[str, Any]:
    tokenizer, model = saved.tokenizer, saved.model.eval()
    inputs = tokenizer(before + row["source"], return_tensors="pt")
    target = tokenizer(text_target=row["target"], return_offsets_mapping=True)
    labels = torch.tensor([target["input_ids"]])
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).logits[0]
    norms = token_stats(logits=logits, targets=labels[0]).error_norm.tolist()
    return {"source": before + row["source"], "tokens": _pieces(row["target"], target["offset_mapping"], norms)}


def _pieces(text: str, offsets: list[tuple[int, int]], norms: list[float]) -> list[tuple[str, float]]:
    """The text cut at its tokens; several tokens of one letter, as bytes are, are one piece with the largest norm."""
    out: list[tuple[str, float]] = []
    end = 0
    for (_, stop), norm in zip(offsets, norms, strict=True):
        if stop > end:
            out.append((text[end:stop], norm))
            end = stop
        elif stop and out:
            out[-1] = (out[-1][0], max(out[-1][1], norm))
    return out
