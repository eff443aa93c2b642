"""The shell: the only object that holds state. No arithmetic lives here."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from . import compiler, ranks
from .batch import Batch, head_of
from .context import Context
from .head import Head, VocabShard, widened
from .kernels import KERNELS
from .objectives import Objective, Weighed, require, require_choice, require_share, smoothed
from .stats import TokenStats, primitives
from .units import Layout

PATIENCE = 1000  # training batches without a single step before we ask whether `advance` was forgotten
log = logging.getLogger("errornorm")


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What came out of one batch. `total` and the counts add up over micro-batches and ranks; whoever steps divides."""

    total: Tensor  # sum of the objective over the tokens, differentiable
    num_tokens: int  # not ignored
    num_kept: int  # of these, weight above 0
    cutoff: float | None  # the score above which tokens were dropped, if a cutoff was in force
    weights: Tensor  # in the shape of the targets, 0 where ignored
    dropped: Tensor  # likewise, bool: weight 0 without being ignored
    stats: TokenStats  # detached, in the shape of the targets, 0 where ignored
    normalize: Literal["valid", "kept"] = "valid"

    @property
    def counted(self) -> Tensor:
        """Which positions are not ignored, in the shape of the targets."""
        return self.dropped | (self.weights != 0)

    @property
    def mean(self) -> Tensor:
        """The total by the number of tokens that count: an average to call backward on."""
        return self.total / max(1, self.num_tokens if self.normalize == "valid" else self.num_kept)


@compiler.uncompiled("_terms")
class RobustLoss(nn.Module):
    """A training loss that follows an objective; in evaluation plain likelihood.

    Args:
        objective: What to optimize, e.g. `errornorm.ent_fraction(0.1)`.
        label_smoothing: Share of the target spread over the vocabulary, in training only.
        normalize: What `.mean` divides by: all tokens that are not ignored ("valid", the paper's expectation), or
            those that were kept ("kept").
        kernel: "auto", or a name from `KERNELS`.
        ignore_index: Target of positions that do not count.
        statistics: Statistics to compute beyond those that the objective needs, for `.stats`.
        overwrite_logits: Let backward put the gradient in place of the logits that were given. Saves their size in
            memory; they must not be read afterwards.
        group: The process group whose tokens a global or running fraction is taken of (None: all ranks). Where the
            vocabulary is split over ranks give the data-parallel group: the ranks of a shard see the same tokens.

    Example:
        >>> import errornorm, torch
        >>> loss = errornorm.RobustLoss(errornorm.ent_fraction(0.25))
        >>> logits = torch.randn(2, 4, 10, requires_grad=True)
        >>> terms = loss(logits=logits, targets=torch.randint(10, (2, 4)))
        >>> terms.mean.backward()
        >>> terms.num_tokens, terms.num_kept
        (8, 6)
        >>> loss.advance()  # after each optimizer step
    """

    def __init__(
        self,
        objective: Objective,
        label_smoothing: float = 0.0,
        normalize: Literal["valid", "kept"] = "valid",
        kernel: str = "auto",
        *,
        ignore_index: int = -100,
        statistics: Iterable[str] = ("error_norm",),
        overwrite_logits: bool = False,
        group: Any = None,
    ) -> None:
        super().__init__()
        require(
            isinstance(objective, Objective),
            f"{_called(objective)} is not an objective: call a method, e.g. errornorm.ent_fraction(0.1), "
            "or errornorm.objective on a text",
        )
        require_share("label_smoothing", label_smoothing)
        require_choice("normalize", normalize, "valid", "kept")
        require_choice("kernel", kernel, "auto", *KERNELS)
        require(isinstance(ignore_index, int), f"ignore_index={ignore_index!r} must be a whole number")
        self.objective = objective
        self.label_smoothing, self.normalize, self.kernel = label_smoothing, normalize, kernel
        self.ignore_index, self.overwrite_logits = ignore_index, overwrite_logits
        self.group = self._population = group
        self.steps_taken = 0
        self.batches_seen = 0
        self.state = objective.init()
        self._smoothed = smoothed(objective, label_smoothing)
        self._needs = primitives([*self._smoothed.needs, *statistics])
        self._warn_if_out_of_reach()
        compiler.keep_out()

    def __deepcopy__(self, memo: dict[int, Any]) -> RobustLoss:
        memo[id(self.group)] = self.group  # a process group cannot be copied, and its ranks are the same
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def extra_repr(self) -> str:
        return f"{self.objective}, label_smoothing={self.label_smoothing}, normalize={self.normalize!r}"

    def forward(
        self,
        *,
        targets: Tensor,
        logits: Tensor | None = None,
        hidden: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
        shard: VocabShard | None = None,
        sequence_ids: Tensor | None = None,
        ref_nll: Tensor | None = None,
        token_weight: Tensor | None = None,
        columns: Mapping[str, Tensor] | None = None,
    ) -> LossTerms:
        """The terms of a batch, given as `logits`, or as `hidden` states with the head's `weight`.

        Args:
            targets, logits, hidden, weight, bias, scale, softcap, shard: As in `token_stats`.
            sequence_ids: For packed batches, which sequence each token belongs to, in the shape of the targets. Equal
                numbers in different rows are different sequences.
            ref_nll: A reference model's -log p(target), for `rho1`.
            token_weight: Weights for `weighted`.
            columns: Further columns for objectives of your own. All are in the shape of the targets.
        """
        named = {"ref_nll": ref_nll, "token_weight": token_weight, "sequence_ids": sequence_ids}
        if twice := named.keys() & (columns or {}).keys():
            raise ValueError(f"columns has {', '.join(sorted(twice))}: give it by its own name")
        given = {name: c for name, c in {**named, **(columns or {})}.items() if c is not None}
        return self._terms(targets, logits, hidden, head_of(weight, bias, scale, softcap, shard), given)

    if TYPE_CHECKING:
        __call__ = forward

    def _terms(
        self,
        targets: Tensor,
        logits: Tensor | None,
        hidden: Tensor | None,
        head: Head | None,
        given: dict[str, Tensor],
    ) -> LossTerms:
        batch = Batch.of(targets, logits, hidden, head, self.ignore_index)
        if not (self.training and torch.is_grad_enabled()):
            stats = batch.stats(self.kernel, self._needs)
            return self._collect(batch, stats, stats.nll, Weighed(torch.ones_like(stats.nll), None, {}), "valid")
        if batch.head is not None and batch.head.shard is not None and self.group is None:
            self._population = ranks.NOBODY  # the other ranks of a shard see the same tokens, not more of them
        with ranks.over(self._population):
            try:
                stats, token_loss, weighed = self._weighed(batch, given)
            except FloatingPointError:
                if ranks.size() > 1:  # the others may wait for this one's scores: it has none
                    nothing = torch.full_like(targets, self.ignore_index)
                    self._weighed(Batch.of(nothing, logits, hidden, head, self.ignore_index), given)
                raise
        self.state = weighed.state
        self.batches_seen += 1
        self._remind()
        return self._collect(batch, stats, token_loss, weighed, self.normalize)

    def _weighed(self, batch: Batch, given: Mapping[str, Tensor]) -> tuple[TokenStats, Tensor, Weighed]:
        columns = {name: column for name, column in given.items() if name != "sequence_ids"}
        now = Context(
            step=self.steps_taken,
            draw=self.batches_seen,
            layout=_layout(batch, given.get("sequence_ids")),
            rows=torch.arange(len(batch.scored), device=batch.source.device),
            columns=self._columns(batch, columns),
        )
        guess = self._smoothed.guess(self.state, now)
        stats = batch.stats(self.kernel, self._needs, guess, self.overwrite_logits)
        self._check_smoothing(batch, stats)
        weighed = self.objective.weigh(stats.detach(), self.state, now)
        return stats, self._smoothed.combine(stats, weighed.weights, now), weighed

    def advance(self) -> None:
        """One optimizer step was taken. Call it once after each; under several ranks on all of them."""
        with ranks.over(self._population):
            self.state = self.objective.settle(self.state)
        self.steps_taken += 1

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "objective": self.objective.spec,
            "steps_taken": self.steps_taken,
            "batches_seen": self.batches_seen,
            "state": {name: value.clone() for name, value in self.state.items()},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if missing := self.get_extra_state().keys() - state.keys():
            raise ValueError(f"this is not the state of a RobustLoss: it has no {', '.join(sorted(missing))}")
        if state["objective"] != self.objective.spec:
            raise ValueError(f"this checkpoint is of {state['objective']}, not of {self.objective.spec}")
        if state["state"].keys() != self.state.keys():
            odd = sorted(state["state"].keys() ^ self.state.keys())
            raise ValueError(f"this checkpoint of {self.objective.spec} is of another version: it differs in {odd[0]}")
        self.steps_taken, self.batches_seen = state["steps_taken"], state["batches_seen"]
        self.state = {name: value.to("cpu", copy=True) for name, value in state["state"].items()}

    def _columns(self, batch: Batch, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if missing := self.objective.columns - given.keys():
            raise ValueError(f"{self.objective.spec} needs {', '.join(sorted(missing))} with every training batch")
        taken = {name: batch.take(name, column) for name, column in given.items()}
        for name, column in taken.items():
            if not (finite := column.isfinite()).all():
                raise FloatingPointError(
                    f"{name} has {int((~finite).sum())} NaN or Inf numbers, at positions {batch.positions(~finite)}"
                )
        kind = widened(batch.source[:0]).dtype
        return {name: column.to(kind) for name, column in taken.items()}

    def _check_smoothing(self, batch: Batch, stats: TokenStats) -> None:
        if self.label_smoothing and not (finite := stats.mean_logit.detach().isfinite()).all():
            raise FloatingPointError(
                f"label smoothing is infinite where the vocabulary is masked with -inf: {int((~finite).sum())} tokens, "
                f"at positions {batch.positions(~finite)}; set label_smoothing to 0"
            )

    def _collect(
        self,
        batch: Batch,
        stats: TokenStats,
        token_loss: Tensor,
        weighed: Weighed,
        normalize: Literal["valid", "kept"],
    ) -> LossTerms:
        return LossTerms(
            total=token_loss.sum(),
            num_tokens=len(batch.scored),
            num_kept=int((weighed.weights > 0).sum()),
            cutoff=None if weighed.cutoff is None else float(weighed.cutoff),
            weights=batch.spread(weighed.weights),
            dropped=batch.spread(weighed.weights == 0),
            stats=stats.detach().spread(batch.scored.index, batch.shape),
            normalize=normalize,
        )

    def _warn_if_out_of_reach(self) -> None:
        """A model that fits smoothed labels is never surer of a wrong token than 1 - label_smoothing."""
        threshold, most = self.objective.norm_threshold, 1 - self.label_smoothing
        if threshold is not None and threshold >= math.hypot(1, most):
            sure = math.sqrt(max(0.0, threshold**2 - 1))
            log.warning(
                "with label smoothing %g error norms end at about %.3f, so the threshold %g drops nothing: use %.3f, "
                "which asks for the same certainty",
                self.label_smoothing, math.hypot(1, most), threshold, math.hypot(1, most * sure),
            )  # fmt: skip

    def _remind(self) -> None:
        if self.steps_taken == 0 and self.batches_seen == PATIENCE:
            log.warning(
                "%d training batches and no optimizer step: call advance() after each, or start steps and running "
                "cutoffs never take effect",
                PATIENCE,
            )


def _called(what: Any) -> str:
    """In one line, which the text of a model is not."""
    return repr(what) if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)


def _layout(batch: Batch, sequence_ids: Tensor | None) -> Layout:
    index = batch.scored.index
    row = index // batch.shape[-1] if len(batch.shape) > 1 else None
    if sequence_ids is not None and (sequence_ids.is_floating_point() or sequence_ids.is_complex()):
        raise ValueError(f"sequence_ids must be whole numbers, not {sequence_ids.dtype}")
    ids = None if sequence_ids is None else batch.take("sequence_ids", sequence_ids).long()
    return Layout(row, ids, len(index))
