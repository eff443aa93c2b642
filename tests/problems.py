"""Batches and methods that many tests share.

Shapes: 6 sequences of 11 positions, some ignored; hidden size 16, vocabulary 301.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from errornorm import METHODS, RobustLoss, objective

VOCAB, HIDDEN = 301, 16
CASES = [
    *METHODS,
    "ent_fraction(0.3, unit='sequence')",
    "ent_fraction(0.3, scope='running')",
    "ent_fraction(0.3, scope='global')",
    "ent_fraction(0.5, keep_first=2, max_dropped=0.25)",
    "ent_threshold(1.05, keep_first=1)",
    "loss_truncation(0.3, window=20, min_count=4)",
    "random_truncation(0.5, unit='sequence')",
    "token_loss_truncation(0.3, scope='running')",
    "rho1(0.5, max_dropped=0.5)",
    "tailr(0.5, 0.1, start=1)",
    "ent_fraction(0.3, start=2)",
]


@dataclass
class Problem:
    hidden: Tensor
    weight: Tensor
    bias: Tensor
    targets: Tensor
    ref_nll: Tensor
    token_weight: Tensor

    def to(self, dtype: torch.dtype) -> Problem:
        """Fresh leaves with the same numbers, as far as the type can hold them."""
        leaves = (x.detach().to(dtype).requires_grad_() for x in (self.hidden, self.weight, self.bias))
        columns = (x if dtype == torch.float64 else x.float() for x in (self.ref_nll, self.token_weight))
        return Problem(*leaves, self.targets, *columns)

    @property
    def columns(self) -> dict[str, Tensor]:
        return {"targets": self.targets, "ref_nll": self.ref_nll, "token_weight": self.token_weight}

    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.hidden, self.weight, self.bias


def problem(
    seed: int = 0,
    rows: int = 6,
    time: int = 11,
    ignored: float = 0.2,
    dtype=torch.float32,
    vocab: int = VOCAB,
    width: int = HIDDEN,
    size: float = 0.8,
) -> Problem:
    """Hidden states that lean towards their target, or for some tokens towards another one. Exact in `dtype`."""
    g = torch.Generator().manual_seed(seed)
    # Logits of one size, whatever the width.
    weight = torch.randn(vocab, width, generator=g) * (size * min(1.0, (HIDDEN / width) ** 0.5))
    targets = torch.randint(vocab, (rows, time), generator=g)
    toward = torch.where(
        torch.rand(rows, time, generator=g) < 0.2, torch.randint(vocab, (rows, time), generator=g), targets
    )
    pull = 2 * torch.rand(rows, time, 1, generator=g)
    hidden = torch.randn(rows, time, width, generator=g) + pull * weight[toward]
    targets[torch.rand(rows, time, generator=g) < ignored] = -100
    ref = 8 * torch.rand(rows, time, generator=g)
    own = torch.rand(rows, time, generator=g).round(decimals=1)
    bias = 0.3 * torch.randn(vocab, generator=g)
    # Rounded, so that a half-precision problem and its float64 twin are the same problem.
    return Problem(*(x.to(dtype).double() for x in (hidden, weight, bias)), targets, ref.double(), own.double())


def terms_and_grads(case, p: Problem, source: str, kernel: str, steps: int = 3, head=None, **options):
    """The terms and gradients of the last of some steps, so that running cutoffs have something to run on."""
    loss = RobustLoss(objective(case) if isinstance(case, str) else case, kernel=kernel, **options)
    for _ in range(steps):
        if source == "hidden":
            terms = loss(hidden=p.hidden, weight=p.weight, bias=p.bias, **(head or {}), **p.columns)
        else:
            z = torch.nn.functional.linear(p.hidden.to(p.ref_nll), p.weight.to(p.ref_nll), p.bias.to(p.ref_nll))
            z = z.to(p.hidden.dtype).detach().requires_grad_()
            terms = loss(logits=z, **p.columns)
        loss.advance()
    leaves = p.leaves() if source == "hidden" else (z,)
    return terms, torch.autograd.grad(terms.mean, leaves, allow_unused=True)


def same_decisions(got, gold, own: float = 0.0) -> None:
    """Kept sets may differ only where a score is within 1e-5 of the cutoff; here none is."""
    assert torch.equal(got.weights > 0, gold.weights > 0)
    torch.testing.assert_close(got.weights.double(), gold.weights, rtol=2e-6, atol=1e-7 + own)


def same_numbers(
    got,
    grads,
    gold,
    gold_grads,
    plain_grads,
    dtype: torch.dtype,
    floor: float = 0.0,
    own: float = 0.0,
    rounding: int = 4,
) -> None:
    """A kernel's terms and gradients, those of float64, and the gradients of the specification in the kernel's type.

    `floor`: a difference of the totals that is none. `own`: by how much the specification's weights are off.
    `rounding`: in float32, of the largest entry of a gradient.
    """
    same_decisions(got, gold, own)
    torch.testing.assert_close(got.total.double(), gold.total, rtol=1e-6, atol=floor)
    assert (got.num_tokens, got.num_kept) == (gold.num_tokens, gold.num_kept)
    for grad, own, want in zip(grads, plain_grads, gold_grads, strict=True):
        assert grad.dtype == dtype
        allowed = (own.double() - want).abs().max() + rounding * torch.finfo(torch.float32).eps * want.abs().max()
        assert (grad.double() - want).abs().max() <= allowed


def weigh(text: str, *rows: list[float], shape: tuple[int, ...] | None = None, steps: int = 1, **columns):
    """The terms of a batch of next-token distributions, of which the first entry is always the target."""
    width = max(map(len, rows))
    p = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], dtype=torch.float64)
    shape = shape or (len(rows),)
    logits = p.log().view(*shape, width).requires_grad_()
    loss = RobustLoss(objective(text))
    columns = {name: torch.tensor(column, dtype=torch.float64).view(shape) for name, column in columns.items()}
    for _ in range(steps):
        terms = loss(logits=logits, targets=torch.zeros(shape, dtype=torch.long), **columns)
        loss.advance()
    return terms
