"""Per-token statistics: everything the model tells an objective about a token.

Shapes: N scored tokens (ignored positions are already gone).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

ERROR_NORM_MAX = math.sqrt(2)
COLUMNS = ("nll", "lse", "mean_logit", "off_target", "entropy")
EVERY = frozenset(COLUMNS)
OBSERVED = ("margin",)  # only to look at: no gradient flows through these
ALL = (*COLUMNS, *OBSERVED)
ALWAYS = frozenset({"nll", "lse"})
DERIVED = {"p_target": "nll", "error_norm": "off_target", "smooth": "mean_logit"}


class TokenStats:
    """Five primitive columns, one to look at, and what is derived from them.

    | statistic    | kind      | is                                                          |
    |--------------|-----------|-------------------------------------------------------------|
    | `nll`        | primitive | -log p(target)                                              |
    | `lse`        | primitive | log of the sum of exp(logits)                               |
    | `mean_logit` | primitive | mean of the logits over the vocabulary                      |
    | `off_target` | primitive | sum of p(v)^2 over v other than the target                  |
    | `entropy`    | primitive | -sum of p(v) log p(v)                                       |
    | `margin`     | observed  | logit of the target less the highest other one; no gradient |
    | `p_target`   | derived   | exp(-nll)                                                   |
    | `error_norm` | derived   | l2 norm of p - onehot(target), between 0 and the root of 2  |
    | `smooth`     | derived   | lse - mean_logit: the mean of -log p(v), for label smoothing |

    `nll` and `lse` are always there. The others cost extra: reading one that was not computed raises an
    `AttributeError` that says how to get it.
    """

    nll: Tensor
    lse: Tensor
    mean_logit: Tensor
    off_target: Tensor
    entropy: Tensor
    margin: Tensor

    def __init__(self, **columns: Tensor) -> None:
        if unknown := columns.keys() - set(ALL):
            raise ValueError(f"TokenStats has no columns {sorted(unknown)}; it has {', '.join(ALL)}")
        self.__dict__.update(columns)

    def __getattr__(self, name: str) -> Tensor:
        if name not in (*ALL, *DERIVED):
            raise AttributeError(f"TokenStats has no {name!r}; it has {', '.join((*ALL, *DERIVED))}")
        raise AttributeError(f"{name} was not computed; ask for it with statistics=({name!r},)")

    def __repr__(self) -> str:
        return f"TokenStats({', '.join(f'{k}={tuple(c.shape)}' for k, c in self.columns().items())})"

    @property
    def p_target(self) -> Tensor:
        return (-self.nll).exp()

    @property
    def smooth(self) -> Tensor:
        return self.lse - self.mean_logit

    @property
    def error_norm(self) -> Tensor:
        # The textbook 1 - 2p + sum p^2 cancels: it is off by 3 % at a norm of 3e-4, and 0 below 1e-5.
        square = torch.expm1(-self.nll).square() + self.off_target
        # At 0 the root has no slope, and that of the norm is 0.
        return torch.where(square > 0, square, 1.0).sqrt().where(square > 0, 0.0)

    def columns(self) -> dict[str, Tensor]:
        """The columns that were computed."""
        return {name: self.__dict__[name] for name in ALL if name in self.__dict__}

    def map(self, f: Callable[[Tensor], Tensor]) -> TokenStats:
        return TokenStats(**{name: f(column) for name, column in self.columns().items()})

    def detach(self) -> TokenStats:
        return self.map(Tensor.detach)

    def take(self, rows: Tensor) -> TokenStats:
        return self.map(lambda column: column[rows])

    def spread(self, index: Tensor, shape: torch.Size) -> TokenStats:
        """Back into the shape of the batch, 0 where a position is ignored."""
        return self.map(lambda column: spread(column, index, shape))


def spread(column: Tensor, index: Tensor, shape: torch.Size) -> Tensor:
    """Numbers of the scored tokens, back in the shape of the batch."""
    return column.new_zeros(shape.numel()).index_copy(0, index, column).view(shape)


def primitives(names: Iterable[str]) -> frozenset[str]:
    """The columns behind statistics, derived ones included."""
    names = (names,) if isinstance(names, str) else names
    wanted = frozenset(DERIVED.get(name, name) for name in names)
    if unknown := wanted - set(ALL):
        raise ValueError(f"unknown statistics {sorted(unknown)}; there are {', '.join((*ALL, *DERIVED))}")
    return wanted | ALWAYS


@dataclass(frozen=True, slots=True)
class Guess:
    """Args:
    of: From detached statistics of the tokens seen so far, and their numbers in the batch, a guess of the gradient of
        the loss with respect to each statistic.
    first: Numbers of the tokens that tell the most, to be seen before the others.
    """

    of: Callable[[TokenStats, Tensor], TokenStats]
    first: Tensor | None = None
