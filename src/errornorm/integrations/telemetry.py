"""What training looks like through the objective, from one log line to the next.

Everything is a sum or a count, so it adds up over micro-batches and ranks. Quantiles come from a histogram.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import ranks
from ..head import finest
from ..loss import LossTerms
from ..running import Histogram
from ..stats import ERROR_NORM_MAX

BINS = 1024  # a quantile is then exact to 0.0014
_NORMS = Histogram(0.0, ERROR_NORM_MAX, bins=BINS)
QUANTILES = (0.5, 0.9, 0.99)
PREFIX = "errornorm/"
SUMS = ("tokens", "kept", "nll", "entropy", "error_norm", "objective")

Sources = Tensor | Sequence[Any]  # one per sequence, or one per token


class Telemetry:
    """Sums since the last `flush`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._sums: dict[str, Tensor] = {}  # of everything under "", and of each source
        self._norms = torch.zeros(BINS, dtype=torch.int64, device="cpu")
        self._cutoffs = torch.zeros(2, dtype=torch.float64, device="cpu")  # their sum and number

    def add(self, terms: LossTerms, sources: Sources | None = None) -> None:
        """Take in a batch."""
        stats, counted = terms.stats, terms.counted
        columns = torch.stack(
            [
                torch.ones_like(stats.nll),
                (~terms.dropped).to(stats.nll.dtype),
                stats.nll,
                stats.entropy,
                stats.error_norm,
                torch.zeros_like(stats.nll),  # an objective may not be a sum over tokens: it is known as a whole only
            ]
        )
        columns = finest(columns[:, counted])
        norms = stats.error_norm[counted].float()
        sums = columns.sum(1)
        sums[-1] = terms.total.detach()
        self._put("", sums)
        self._norms += torch.histc(norms.cpu(), BINS, 0.0, ERROR_NORM_MAX).long()
        if terms.cutoff is not None and abs(terms.cutoff) != float("inf"):
            self._cutoffs += torch.tensor([terms.cutoff, 1.0], dtype=torch.float64, device="cpu")
        if sources is not None:
            for name, mask in _masks(sources, counted):
                self._put(name, columns[:, mask[counted]].sum(1))

    def _put(self, name: str, sums: Tensor) -> None:
        self._sums[name] = self._sums.get(name, torch.zeros(len(SUMS), dtype=torch.float64, device="cpu")) + sums.cpu()

    def flush(self) -> dict[str, float]:
        """The metrics of all ranks together, which all must ask at the same time; then start anew."""
        parts = ranks.objects(self._sums)
        norms, cutoffs = ranks.add(self._norms), ranks.add(self._cutoffs)
        self.clear()
        total: dict[str, Tensor] = {}
        for part in parts:
            for name, sums in part.items():
                total[name] = total.get(name, torch.zeros_like(sums)) + sums
        row: dict[str, float] = {}
        for name, sums in sorted(total.items()):
            row |= _means(sums, f"{PREFIX}{name}/" if name else PREFIX, brief=bool(name))
        if row:
            row |= {f"{PREFIX}error_norm_p{round(100 * q)}": _quantile(norms, q) for q in QUANTILES}
            row[f"{PREFIX}error_norm_top10"] = _NORMS.top_mean({"counts": norms.double()}, 0.1)
        if cutoffs[1] > 0:
            row[f"{PREFIX}cutoff"] = float(cutoffs[0] / cutoffs[1])
        return row


def _means(sums: Tensor, prefix: str, brief: bool) -> dict[str, float]:
    tokens = float(sums[0])
    means = {name: float(value) / tokens for name, value in zip(SUMS[1:], sums[1:], strict=True)} if tokens else {}
    shown = ("kept", "nll", "error_norm") if brief else ("kept", "objective", "nll", "entropy")
    return {f"{prefix}tokens": tokens} | {prefix + name: means[name] for name in shown if name in means}


def _quantile(counts: Tensor, share: float) -> float:
    """Linear inside a bin."""
    cumulated = counts.double().cumsum(0)
    rank = share * float(cumulated[-1])
    bin_ = min(int(torch.searchsorted(cumulated, torch.tensor(rank, dtype=torch.float64, device="cpu"))), BINS - 1)
    inside = float(counts[bin_]) or 1.0
    below = float(cumulated[bin_]) - inside
    return (bin_ + min(1.0, max(0.0, (rank - below) / inside))) * ERROR_NORM_MAX / BINS


def _masks(sources: Sources, counted: Tensor) -> list[tuple[str, Tensor]]:
    """Where each source stands. A name per sequence counts for all of its tokens."""
    flat = sources.tolist() if isinstance(sources, Tensor) else list(sources)
    if isinstance(sources, Tensor) and sources.dim() > 1:
        return [(f"source={x}", (sources == x).to(counted.device)) for x in sources.unique().tolist()]
    if len(flat) != len(counted):
        raise ValueError(f"source names {len(flat)} sequences, and the batch has {len(counted)}")
    out = []
    for name in dict.fromkeys(flat):
        rows = torch.tensor([x == name for x in flat], device=counted.device)
        out.append((f"source={name}", rows.view(-1, *[1] * (counted.dim() - 1)).expand_as(counted)))
    return out
