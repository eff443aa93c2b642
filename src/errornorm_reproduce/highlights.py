"""Table 6: sentences whose tokens are marked by their error norm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from errornorm.batch import token_stats
from errornorm.training import use

READ, SHOWN = 200, 8  # sentences of the corpus; those with the largest error norms of them
YELLOW, RED = 1.0, 1.3  # the paper: "larger than 1.0 are highlighted in yellow and ... larger than 1.3 ... in red"


def sentences(saved: use.Saved, corpus: Path) -> list[dict[str, Any]]:
    """The sentences with the largest error norms among the first of a corpus."""
    with corpus.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(READ), strict=False)]
    seen = [_seen(saved, row) for row in rows]
    return sorted(seen, key=lambda sentence: -max(norm for _, norm in sentence["tokens"]))[:SHOWN]


@torch.no_grad()
def _seen(saved: use.Saved, row: dict[str, Any]) -> dict[str, Any]:
    tokenizer, model = saved.tokenizer, saved.model.eval()
    inputs = tokenizer(saved.prefix + row["source"], return_tensors="pt")
    labels = torch.tensor([tokenizer(text_target=row["target"])["input_ids"]])
    logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels).logits[0]
    norms = token_stats(logits=logits, targets=labels[0]).error_norm.tolist()
    texts = [str(tokenizer.decode([token])) for token in labels[0].tolist()]
    return {"source": row["source"], "noise": row.get("noise"), "tokens": list(zip(texts, norms, strict=True))[:-1]}
