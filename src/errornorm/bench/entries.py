"""Who takes part. Each entry does forward and backward of head and loss.

Shapes: N tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..surface import LossTerms, RobustLoss, objective
from .problem import Problem

TRL_TILE = 32768  # vocabulary entries that TRL's trainers project at a time

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # hidden, weight, targets -> scalar
Step = Callable[[], Tensor | None]  # a whole step; leaves its gradients behind, and returns its loss if it has one


class UnavailableError(Exception):
    """Why an entry cannot take part, in a few words."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What is settled for everyone before the first measurement."""

    fraction: float = 0.1
    threshold: float = 1.38
    chunk: int = 512  # tokens at a time, for torch's fused loss


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    label: str
    kind: Literal["yardstick", "peer", "ours"]
    prepare: Callable[[Problem, Choices], Step]
    method: str | None = "mle"  # the objective that it computes
    note: str = ""
    compiles: bool = False  # for the size at hand, at its first step

    def spec(self, choices: Choices) -> str | None:
        """The objective with every parameter."""
        return None if self.method is None else repr(objective(self.method.format(**_values(choices))))

    def remark(self, choices: Choices) -> str:
        return self.note.format(**_values(choices))


def _values(choices: Choices) -> dict[str, Any]:
    return {**asdict(choices), "share": f"{100 * choices.fraction:g} %"}


def _step(problem: Problem, loss: Loss) -> Step:
    def step() -> Tensor:
        value = loss(problem.hidden, problem.weight, problem.targets)
        value.backward()
        return value.detach()

    return step


def _floor(problem: Problem, choices: Choices) -> Step:
    """The three products that no exact step can do without, into outputs that are already there."""
    tokens, _, vocab = problem.size
    hidden, weight = problem.hidden.detach(), problem.weight.detach()
    logits, d_logits = torch.empty(tokens, vocab), torch.randn(tokens, vocab)
    d_hidden, d_weight = torch.empty_like(hidden), torch.empty_like(weight)

    def step() -> None:
        torch.mm(hidden, weight.T, out=logits)
        torch.mm(d_logits, weight, out=d_hidden)
        torch.mm(d_logits.T, hidden, out=d_weight)

    return step


def _cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight), targets)


def _plain(problem: Problem, choices: Choices) -> Step:
    return _step(problem, _cross_entropy)


def _compiled(problem: Problem, choices: Choices) -> Step:
    return _step(problem, torch.compile(_cross_entropy))


def _paper(problem: Problem, choices: Choices) -> Step:
    """Algorithm 1 line by line; but its mask, which it computes and forgets, is applied, and ties are broken."""

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        logits = F.linear(hidden, weight)
        labels = F.one_hot(targets, len(weight))
        probs = F.softmax(logits, dim=-1)
        norms = torch.linalg.vector_norm(probs - labels, dim=-1)
        worst = norms.sort(descending=True, stable=True).indices[: int(choices.fraction * len(norms))]
        kept = torch.ones_like(norms).index_fill_(0, worst, 0.0)
        return (F.nll_loss(torch.log(probs), targets, reduction="none") * kept).mean()

    return _step(problem, loss)


def _torch_fused(problem: Problem, **options: Any) -> Step:
    if not hasattr(F, "linear_cross_entropy"):
        raise UnavailableError(f"not in torch {torch.__version__}")
    chosen = torch.nn.LinearCrossEntropyOptions(**options)
    return _step(problem, lambda h, w, y: F.linear_cross_entropy(h, w, y, options=chosen))


def _torch_default(problem: Problem, choices: Choices) -> Step:
    return _torch_fused(problem)


def _torch_tuned(problem: Problem, choices: Choices) -> Step:
    return _torch_fused(problem, batch_chunk_size=choices.chunk, chunking_method=None)


def _installed(distribution: str, module: str) -> Any:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise UnavailableError("not installed") from None
    return importlib.import_module(module)


def _cce(problem: Problem, choices: Choices) -> Step:
    peer = _installed("cut-cross-entropy", "cut_cross_entropy")
    return _step(problem, lambda h, w, y: peer.linear_cross_entropy(h, w, y, impl="torch_compile"))


def _trl(problem: Problem, choices: Choices) -> Step:
    peer = _installed("trl", "trl.kernels")
    if not hasattr(peer, "ChunkedLogProbFunction"):
        raise UnavailableError(f"no fused head in trl {importlib.metadata.version('trl')}")

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        # temperature 1, no soft-cap, scale 1, and no statistics beside the likelihood
        log_p, *_ = peer.ChunkedLogProbFunction.apply(
            hidden, weight, None, targets, 1.0, TRL_TILE, None, 1.0, ("log_probs",)
        )
        value: Tensor = -log_p.mean()
        return value

    return _step(problem, loss)


def _ours(name: str, label: str, method: str, note: str = "", logits: bool = False, **options: Any) -> Entry:
    def prepare(problem: Problem, choices: Choices) -> Step:
        robust = RobustLoss(objective(method.format(**_values(choices))), **options)

        def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            if logits:
                terms: LossTerms = robust(logits=F.linear(hidden, weight), targets=targets)
            else:
                terms = robust(hidden=hidden, weight=weight, targets=targets)
            return terms.mean

        return _step(problem, loss)

    return Entry(name, f"errornorm {label}", "ours", prepare, method, note)


_ENT = "ent_fraction({fraction})"

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("floor", "three bare matrix products", "yardstick", _floor, None, "the floor; outputs preallocated"),
        Entry("plain", "plain cross-entropy", "yardstick", _plain, note="F.cross_entropy(F.linear)"),
        Entry("paper", "ENT-Fraction, paper's formula", "peer", _paper, _ENT, "drops {share}"),
        Entry("compiled", "torch.compile of plain", "peer", _compiled, compiles=True),
        Entry("torch_fused", "torch fused, default", "peer", _torch_default, note="F.linear_cross_entropy"),
        Entry("torch_tuned", "torch fused, best chunk", "peer", _torch_tuned, note="{chunk} tokens at a time"),
        Entry("cce", "Apple CCE", "peer", _cce, note="its torch_compile path", compiles=True),
        Entry("trl", "TRL fused head", "peer", _trl, note=f"{TRL_TILE} entries at a time, as its trainers"),
        _ours("mle", "mle", "mle"),
        _ours("ent_fraction", "ent_fraction", _ENT, "drops {share}"),
        _ours("ent_threshold", "ent_threshold", "ent_threshold({threshold})", "{threshold} drops {share} here"),
        _ours("tailr", "tailr", "tailr"),
        _ours("ent_fraction_logits", "ent_fraction of logits", _ENT, "logits given", logits=True),
        _ours(
            "ent_fraction_in_place",
            "ent_fraction of logits, in place",
            _ENT,
            "overwrite_logits",
            logits=True,
            overwrite_logits=True,
        ),
    )
}
