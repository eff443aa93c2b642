"""A batch at the front door: checked, flattened, and reduced to the tokens that count.

Shapes: targets of any shape with M positions in all, N of them scored; V vocabulary, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .head import Head, Scored, VocabShard
from .kernels import choose
from .stats import COLUMNS, Guess, TokenStats, primitives

SHOWN = 5  # positions named in an error message


@dataclass(frozen=True, slots=True)
class Batch:
    source: Tensor  # [M, V] logits, or [M, D] hidden states
    head: Head | None  # None: the source is logits
    scored: Scored
    shape: torch.Size  # of the targets

    @staticmethod
    def of(
        *,
        targets: Tensor,
        logits: Tensor | None,
        hidden: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        scale: float,
        softcap: float | None,
        shard: VocabShard | None,
        ignore_index: int,
    ) -> Batch:
        if (logits is None) == (hidden is None):
            raise ValueError("give either logits=, or hidden= and weight=")
        if logits is not None:
            if weight is not None or bias is not None or scale != 1.0 or softcap is not None or shard is not None:
                raise ValueError(
                    "weight, bias, scale, softcap and shard belong to hidden=; logits are taken as they are"
                )
            source, head, vocab = logits, None, logits.shape[-1]
        else:
            assert hidden is not None
            if weight is None:
                raise ValueError("hidden= needs weight=, the output embedding of shape (vocabulary, hidden size)")
            source, head = hidden, Head(weight, bias, scale, softcap, shard)
            vocab = head.vocab
            _check_head(hidden, head)
        if not source.is_floating_point():
            raise ValueError(f"logits or hidden states must be floating point, not {source.dtype}")
        if source.shape[:-1] != targets.shape:
            raise ValueError(
                f"targets of shape {tuple(targets.shape)} do not fit {tuple(source.shape)}: "
                f"they must be {tuple(source.shape[:-1])}"
            )
        scored = _scored(targets, ignore_index, vocab)
        return Batch(source.reshape(-1, source.shape[-1]), head, scored, targets.shape)

    def stats(
        self, kernel: str, needs: frozenset[str], guess: Guess | None = None, overwrite: bool = False
    ) -> TokenStats:
        """Live statistics [N] of the scored tokens."""
        if self.head is None:
            chosen = choose(kernel, "logits", self.source.device).load()
            stats = chosen.of_logits(self.source, self.scored, needs, overwrite)
        else:
            chosen = choose(kernel, "hidden", self.source.device, self.head).load()
            stats = chosen.of_hidden(self.source, self.head, self.scored, needs, guess)
        assert isinstance(stats, TokenStats)
        self._check_finite(stats)
        return stats

    def take(self, name: str, column: Tensor) -> Tensor:
        """The scored tokens' part of a per-token column."""
        if column.shape != self.shape:
            raise ValueError(f"{name} of shape {tuple(column.shape)} must have the targets' {tuple(self.shape)}")
        return column.detach().reshape(-1)[self.scored.index].to(self.scored.index.device)

    def spread(self, column: Tensor) -> Tensor:
        """Back into the shape of the targets, 0 where a position is ignored."""
        return TokenStats(nll=column).spread(self.scored.index, self.shape).nll

    def positions(self, which: Tensor) -> str:
        """Where the first of some scored tokens stand, for a message."""
        flat = self.scored.index[which.nonzero().squeeze(1)[:SHOWN]]
        places = torch.stack(torch.unravel_index(flat, self.shape), 1).tolist() if self.shape else [[]]
        return ", ".join(map(str, places)) + (", ..." if int(which.sum()) > SHOWN else "")

    def _check_finite(self, stats: TokenStats) -> None:
        bad = ~(stats.nll.detach().isfinite() & stats.lse.detach().isfinite())
        if bad.any():
            raise FloatingPointError(
                f"{int(bad.sum())} of {len(bad)} tokens have NaN or Inf in their logits, or a target whose logit is "
                f"-inf, at positions {self.positions(bad)}"
            )


def _check_head(hidden: Tensor, head: Head) -> None:
    if head.weight.dim() != 2 or head.weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"weight of shape {tuple(head.weight.shape)} does not fit hidden states of size {hidden.shape[-1]}: "
            "it must be (vocabulary, hidden size)"
        )
    if head.bias is not None and head.bias.shape != head.weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(head.bias.shape)} must be ({len(head.weight)},)")
    if head.softcap is not None and head.softcap <= 0:
        raise ValueError(f"softcap={head.softcap} must be above 0 (None: no soft-capping)")


def _scored(targets: Tensor, ignore_index: int, vocab: int) -> Scored:
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(f"targets must be whole numbers, not {targets.dtype}")
    flat = targets.reshape(-1).long()
    index = (flat != ignore_index).nonzero().squeeze(1)
    chosen = flat[index]
    outside = (chosen < 0) | (chosen >= vocab)
    if outside.any():
        first = int(outside.nonzero()[0])
        raise ValueError(
            f"{int(outside.sum())} targets are outside of the vocabulary of {vocab}, the first is "
            f"{int(chosen[first])} at flat position {int(index[first])}; ignored positions must be {ignore_index}"
        )
    return Scored(index, chosen)


def token_stats(
    *,
    targets: Tensor,
    logits: Tensor | None = None,
    hidden: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
    shard: VocabShard | None = None,
    ignore_index: int = -100,
    kernel: str = "auto",
    statistics: Iterable[str] = COLUMNS,
) -> TokenStats:
    """What the model says about each target: differentiable, in the shape of `targets`, 0 where ignored.

    Args:
        targets: Token numbers of any shape.
        logits: Of shape (*targets.shape, vocabulary).
        hidden: Instead of logits, the head's input: (*targets.shape, hidden size). No logits are ever materialised.
        weight: Of the head, (vocabulary, hidden size).
        bias: Of the head, (vocabulary,).
        scale: The head multiplies its logits by this.
        softcap: The head soft-caps its logits: softcap * tanh(logits / softcap).
        shard: Set when `weight` and `bias` are this rank's part of the vocabulary.
        ignore_index: Target of positions that do not count.
        kernel: "auto", or a name from `KERNELS`.
        statistics: Which ones to compute; all by default.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]])
        >>> stats = token_stats(logits=logits, targets=torch.tensor([1, 1]))
        >>> [round(x, 3) for x in stats.error_norm.tolist()]
        [0.866, 1.414]
    """
    batch = Batch.of(
        targets=targets, logits=logits, hidden=hidden, weight=weight, bias=bias, scale=scale, softcap=softcap,
        shard=shard, ignore_index=ignore_index,
    )  # fmt: skip
    return batch.stats(kernel, primitives(statistics)).spread(batch.scored.index, batch.shape)
