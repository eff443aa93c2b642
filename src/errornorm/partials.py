"""Softmax partials: what one slice of the vocabulary knows about a token.

Shapes: N tokens, V vocabulary entries.

A partial is an element of a commutative monoid: `merge` is associative, so the same six numbers per token
can be folded over blocks in a loop, over programs on a GPU, or over ranks with all-reduce. Every kernel is a
way of folding.

All sums run over the *other* tokens, v != target. With S their mass and r = S exp(peak - z_target),

    nll = log(1 + r),   1 - p_target = r / (1 + r),   error_norm = (1 - p_target) sqrt(1 + square / S^2),

so nothing cancels and nothing overflows, however sure or wrong the model is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .stats import ALWAYS, COLUMNS, EVERY, TokenStats


@dataclass(frozen=True, slots=True)
class Partial:
    peak: Tensor  # max of z over the others
    mass: Tensor  # their sum of exp(z - peak)
    square: Tensor  # of exp(2 (z - peak))
    dot: Tensor  # of exp(z - peak) * (z - peak)
    total: Tensor  # sum of z, target included
    target: Tensor  # z of the target, 0 if it is not in this slice
    unit: float = field(default=1.0, kw_only=True)  # z was multiplied by this; `finish` divides by it, in float64

    def take(self, rows: Tensor) -> Partial:
        return Partial(*(column[rows] for column in self.columns()), unit=self.unit)

    def join(self, other: Partial) -> Partial:
        """Of these tokens and others."""
        return Partial(*(torch.cat(pair) for pair in zip(self.columns(), other.columns(), strict=True)), unit=self.unit)

    def columns(self) -> tuple[Tensor, ...]:
        return self.peak, self.mass, self.square, self.dot, self.total, self.target


def merge(a: Partial, b: Partial) -> Partial:
    peak = torch.maximum(a.peak, b.peak)
    a, b = lift(a, peak), lift(b, peak)
    return Partial(peak, *(x + y for x, y in zip(a.columns()[1:], b.columns()[1:], strict=True)), unit=a.unit)


def lift(p: Partial, peak: Tensor) -> Partial:
    """The same partial relative to a higher peak; partials of one peak simply add up."""
    down = p.peak - peak
    e = (down / p.unit).exp()
    return Partial(peak, p.mass * e, p.square * e.square(), (p.dot + down * p.mass) * e, p.total, p.target, unit=p.unit)


def finish(p: Partial, vocab: int, needs: frozenset[str] = EVERY) -> TokenStats:
    """The statistics of a token whose whole vocabulary is folded.

    In float64: these few numbers cost nothing, and float32 would lose digits in `peak - target`.
    """
    peak, mass, square, dot, total, target = (column.double() for column in p.columns())
    peak, dot, total, target = peak / p.unit, dot / p.unit, total / p.unit, target / p.unit
    log_mass = mass.log()
    odds = (peak - target) + log_mass  # log of (1 - p_target) / p_target
    nll = torch.logaddexp(odds, torch.zeros_like(odds))
    p_others = -torch.expm1(-nll)
    every = {
        "nll": nll,
        "lse": target + nll,
        "mean_logit": total / vocab,
        "off_target": square * (p_others / mass).square(),
        # target or not, and if not, which
        "entropy": nll - p_others * odds + p_others * (log_mass - dot / mass),
        "margin": target - peak,
    }
    return TokenStats(**{name: c.to(p.mass.dtype) for name, c in every.items() if name in needs | ALWAYS})


class Slope(NamedTuple):
    """d loss / d logits of a token, from d loss / d statistics: one formula for every objective.

    dz_v = p_v (flat + square p_v + log log p_v) off the target, `target` at the target, plus `mean` / V everywhere.
    """

    flat: Tensor
    square: Tensor
    log: Tensor
    target: Tensor
    mean: Tensor

    @property
    def is_flat(self) -> bool:
        """Likelihood alone: dz is a multiple of p off the target."""
        return not (self.square.any() or self.log.any())


def slope(stats: TokenStats, grad: TokenStats) -> Slope:
    present = grad.columns()
    zero = torch.zeros_like(stats.nll)
    g_nll, g_lse, g_mean, g_off, g_entropy = (present.get(name, zero) for name in COLUMNS)
    rest = g_lse
    if "off_target" in present:
        rest = rest - 2 * stats.off_target * g_off
    if "entropy" in present:
        rest = rest - stats.entropy * g_entropy
    # p_target (g_nll + rest) - g_nll, with p_target - 1 and p_target apart: cancels neither near 1 nor near 0
    target = g_nll * torch.expm1(-stats.nll) + stats.p_target * (rest + g_entropy * stats.nll)
    return Slope(g_nll + rest, 2 * g_off, -g_entropy, target, g_mean)
