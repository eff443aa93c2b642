"""Scores: what ranks tokens. Higher is more suspicious."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from . import ranks
from .context import Context
from .stats import ERROR_NORM_MAX, TokenStats
from .units import Unit


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    of: Callable[[TokenStats, Context], Tensor]
    bounds: tuple[float, float]  # where its histogram begins and ends; what lies outside counts at the edge
    needs: frozenset[str] = frozenset()  # statistics
    columns: frozenset[str] = frozenset()  # from outside the model


error_norm = Score("error_norm", lambda stats, now: stats.error_norm, (0.0, ERROR_NORM_MAX), frozenset({"off_target"}))
nll = Score("nll", lambda stats, now: stats.nll, (0.0, 32.0))

# Rho-1 keeps the largest excess loss over a reference model, so its negative is what ranks for dropping.
lack_of_excess = Score(
    "lack_of_excess",
    lambda stats, now: now.columns["ref_nll"] - stats.nll,
    (-32.0, 32.0),
    columns=frozenset({"ref_nll"}),
)


def chance(seed: int, unit: Unit) -> Score:
    """A new random number for each unit of each batch on each rank; the same ones after a resume."""

    def of(stats: TokenStats, now: Context) -> Tensor:
        mixed = (seed * 1_000_003 + now.draw) * 1_000_003 + ranks.number()
        generator = torch.Generator("cpu").manual_seed(mixed % 2**63)
        numbers = torch.rand(now.layout.count(unit), generator=generator, device="cpu").to(stats.nll)
        return numbers[now.rows] if unit == "token" else numbers[now.layout.sequence[now.rows]]

    return Score("chance", of, (0.0, 1.0))
