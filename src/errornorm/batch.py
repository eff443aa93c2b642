"""A batch at the front door: checked, flattened, and reduced to the tokens that count.

Shapes: targets of any shape with M positions in all, N of them scored; V vocabulary, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .compiler import uncompiled
from .head import Head, Scored, VocabShard
from .kernels import choose
from .stats import COLUMNS, Guess, TokenStats, primitives, spread

SHOWN = 5  # positions named in an error message


@uncompiled("stats")
@dataclass(frozen=True, slots=True)
class Batch:
    source: Tensor  # [M, V] logits, or [M, D] hidden states
    head: Head | None  # None: the source is logits
    scored: Scored
    shape: torch.Size  # of the targets

    @staticmethod
    def of(
        targets: Tensor, logits: Tensor | None, hidden: Tensor | None, head: Head | None, ignore_index: int
    ) -> Batch:
        if (logits is None) == (hidden is None):
            raise ValueError("give either logits=, or hidden= and weight=")
        if logits is not None and head is not None:
            raise ValueError("weight, bias, scale, softcap and shard belong to hidden=; logits are taken as they are")
        if hidden is not None and head is None:
            raise ValueError("hidden= needs weight=, the output embedding of shape (vocabulary, hidden size)")
        source = hidden if logits is None else logits
        for name, tensor in (("targets", targets), ("logits or hidden states", source)):
            if not isinstance(tensor, Tensor):
                raise ValueError(f"{name} must be a tensor, not a {type(tensor).__name__}")
        assert source is not None
        if not source.is_floating_point():
            raise ValueError(f"logits or hidden states must be floating point, not {source.dtype}")
        if source.dim() == 0 or source.shape[:-1] != targets.shape:
            raise ValueError(
                f"targets of shape {tuple(targets.shape)} do not fit {tuple(source.shape)}: "
                f"they must be {tuple(source.shape[:-1])}"
            )
        if head is not None:
            _check_head(source, head)
        scored = _scored(targets, ignore_index, source.shape[-1] if head is None else head.vocab)
        return Batch(source.reshape(-1, source.shape[-1]), head, scored, targets.shape)

    def stats(
        self, kernel: str, needs: frozenset[str], guess: Guess | None = None, overwrite: bool = False
    ) -> TokenStats:
        """Live statistics [N] of the scored tokens."""
        with torch.autocast(self.source.device.type, enabled=False):
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
        return column.detach().to(self.scored.index.device).reshape(-1)[self.scored.index]

    def spread(self, column: Tensor) -> Tensor:
        """Back into the shape of the targets, 0 where a position is ignored."""
        return spread(column, self.scored.index, self.shape)

    def positions(self, which: Tensor) -> str:
        """Where the first of some scored tokens stand, for a message."""
        flat = self.scored.index[which.nonzero().squeeze(1)[:SHOWN]]
        places = torch.stack(torch.unravel_index(flat, self.shape), 1).tolist() if self.shape else [[]]
        return ", ".join(map(str, places)) + (", ..." if int(which.sum()) > SHOWN else "")

    def _check_finite(self, stats: TokenStats) -> None:
        bad = ~(stats.nll.detach().isfinite() & stats.lse.detach().isfinite())
        if self.head is not None:
            # A soft-cap, or a product that is -inf like a mask, would hide these from the statistics.
            total = torch.sum(self.source.detach(), 1, dtype=stats.nll.dtype)
            bad |= ~total[self.scored.index].isfinite()
        if bad.any():
            raise FloatingPointError(
                f"{int(bad.sum())} of {len(bad)} tokens have NaN or Inf in their logits, or a target whose logit is "
                f"-inf, at positions {self.positions(bad)}"
            )


def head_of(
    weight: Tensor | None, bias: Tensor | None, scale: float, softcap: float | None, shard: VocabShard | None
) -> Head | None:
    """The head that was given, if one was."""
    if weight is not None:
        return Head(weight, bias, scale, softcap, shard)
    if bias is not None or scale != 1.0 or softcap is not None or shard is not None:
        raise ValueError("weight, bias, scale, softcap and shard belong to hidden=; logits are taken as they are")
    return None


def _check_head(hidden: Tensor, head: Head) -> None:
    weight, bias, shard = head.weight, head.bias, head.shard
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1] or not weight.is_floating_point():
        raise ValueError(
            f"weight of shape {tuple(weight.shape)} and type {weight.dtype} does not fit hidden states of size "
            f"{hidden.shape[-1]}: it must be (vocabulary, hidden size) in floating point"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias of shape {tuple(bias.shape)} must be ({len(weight)},)")
    if isinstance(head.scale, Tensor) or not (math.isfinite(head.scale) and head.scale != 0):
        raise ValueError(f"scale={head.scale} must be a number other than 0; multiply the hidden states to learn one")
    if head.softcap is not None and not 0 < head.softcap < math.inf:
        raise ValueError(f"softcap={head.softcap} must be a number above 0 (None: no soft-capping)")
    if shard is not None and not 0 <= shard.start <= shard.vocab - len(weight):
        raise ValueError(f"{len(weight)} rows from {shard.start} on do not fit into a vocabulary of {shard.vocab}")
    if head.softcap is not None and bias is not None and (bias.detach() == -math.inf).any():
        raise ValueError("a bias of -inf masks nothing behind a soft-cap: mask the logits, and give logits=")
    if shard is None and (problem := head.not_finite()):  # the ranks of a shard have to tell each other
        raise FloatingPointError(problem)


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
    batch = Batch.of(targets, logits, hidden, head_of(weight, bias, scale, softcap, shard), ignore_index)
    return batch.stats(kernel, primitives(statistics)).spread(batch.scored.index, batch.shape)
