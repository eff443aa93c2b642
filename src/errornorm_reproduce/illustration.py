"""Figure 1: three predictions with the same probability of the target, hence the same loss."""

from __future__ import annotations

from typing import Any

import torch

from errornorm.batch import token_stats

WORDS = ("house", "building", "hotel", "mansion", "apple", "car", "idea", "river")
TARGET = 0.1  # probability of the target in all of them
SHAPES = {  # of the other words
    "many continuations are possible": (0.25, 0.25, 0.25, 0.0375, 0.0375, 0.0375, 0.0375),
    "the model has not learnt yet": (0.9 / 7,) * 7,
    "the data is an error": (0.87, 0.005, 0.005, 0.005, 0.005, 0.005, 0.005),
}


def distributions() -> list[dict[str, Any]]:
    """Loss and error norm of each, by the library."""
    out = []
    for name, others in SHAPES.items():
        probabilities = torch.tensor([TARGET, *others], dtype=torch.float64)
        stats = token_stats(logits=probabilities.log()[None], targets=torch.tensor([0]))
        out.append({
            "name": name,
            "words": list(WORDS),
            "probabilities": [round(p, 4) for p in probabilities.tolist()],
            "nll": float(stats.nll),
            "error_norm": float(stats.error_norm),
        })  # fmt: skip
    return out
