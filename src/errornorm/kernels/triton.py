"""The element-wise stage as two Triton programs, for GPUs. Everything else is as in `chunked` and `logits`.

Shapes: R rows, V vocabulary entries of this slice, S spans of it.

On a GPU these steps wait for memory, not for arithmetic. So `fold_` reads the logits once, leaves them as they are,
and computes every sum whether it is needed or not; `grad_` reads them again and writes the gradient in their place.

Each program of `fold_` handles one span of one row. A lane of it keeps partial sums of its own, relative to its own
running peak; they are merged by the rule of `partials.merge`, as are the spans of a row. No sum is then long enough
to lose digits, and a few rows with a large vocabulary still occupy the whole GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..head import Head, Scored
from ..partials import Partial, Slope, lift
from ..stats import EVERY, Guess, TokenStats
from . import logits as logits_driver
from . import rows, speculate
from .passes import OneRank
from .rows import Folded, locate

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("kernel='triton' needs the triton package: pip install errornorm[gpu]") from error

BLOCK = 1024  # vocabulary entries that a program holds at a time
SPAN = 16 * BLOCK  # entries that it folds
FLOOR = tl.constexpr(rows.FLOOR)
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)  # the peak of a row that is -inf throughout


@triton.jit
def _tanh(x: tl.tensor) -> tl.tensor:
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    far = tl.where(x < 0, e - 1.0, 1.0 - e) / (1.0 + e)
    # That cancels near 0, where eight terms of the continued fraction are exact, also in float64.
    x = tl.where(size < 0.6, x, 0.0)
    s = x * x
    over = 2027025.0 + s * (270270.0 + s * (6930.0 + s * 36.0))
    under = 2027025.0 + s * (945945.0 + s * (51975.0 + s * (630.0 + s)))
    return tl.where(size < 0.6, x * over / under, far)


@triton.jit
def _cap(u: tl.tensor, SOFTCAP: tl.constexpr) -> tl.tensor:
    if SOFTCAP is not None:
        u = SOFTCAP * _tanh(u / SOFTCAP)
    return u


@triton.jit
def _floored(x: tl.tensor) -> tl.tensor:
    # Not tl.maximum, which would turn NaN into a number.
    return tl.where(x < FLOOR, FLOOR, x)


@triton.jit(do_not_specialize=["R"])
def _fold(
    z: tl.tensor,  # [R, V]
    columns: tl.tensor,  # [R], -1: the target is elsewhere
    out: tl.tensor,  # [6, S, R]
    R: tl.tensor,
    V: tl.tensor,
    stride: tl.tensor,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)  # R * V may exceed 32 bits
    first = tl.program_id(1) * SPAN
    end = tl.minimum(first + SPAN, V)
    column = tl.load(columns + row)
    dtype = z.dtype.element_ty
    peak = tl.full([BLOCK], LOWEST, dtype)
    mass = tl.full([BLOCK], 0.0, dtype)
    square = tl.full([BLOCK], 0.0, dtype)
    dot = tl.full([BLOCK], 0.0, dtype)
    total = tl.full([BLOCK], 0.0, dtype)
    for start in range(first, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < end
        x = _cap(tl.load(z + row * stride + at, mask=inside, other=0.0), SOFTCAP)
        total += x  # beyond the end it is 0
        x = tl.where(inside & (at != column), x, float("-inf"))
        higher = tl.where(x > peak, x, peak)
        down = _floored(peak - higher)
        shrink = tl.exp(down)
        x = _floored(x - higher)
        e = tl.exp(x)
        dot = (dot + down * mass) * shrink + e * x
        mass = mass * shrink + e
        square = square * (shrink * shrink) + e * e
        peak = higher
    highest = tl.max(peak, 0)
    down = _floored(peak - highest)
    shrink = tl.exp(down)
    here = (column >= first) & (column < end)
    target = _cap(tl.load(z + row * stride + column, mask=here, other=0.0), SOFTCAP)
    step = tl.num_programs(1) * R
    out += tl.program_id(1) * R + row
    tl.store(out, highest)
    tl.store(out + step, tl.sum(mass * shrink, 0))
    tl.store(out + 2 * step, tl.sum(square * (shrink * shrink), 0))
    tl.store(out + 3 * step, tl.sum((dot + down * mass) * shrink, 0))
    tl.store(out + 4 * step, tl.sum(total, 0))
    tl.store(out + 5 * step, target)


@triton.jit(do_not_specialize=["R"])
def _grad(
    z: tl.tensor,  # [R, V] overwritten
    columns: tl.tensor,  # [R], -1: the target is elsewhere
    scalars: tl.tensor,  # [8, R]
    R: tl.tensor,
    V: tl.tensor,
    stride: tl.tensor,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z += row * stride + at
    scalars += row
    peak = tl.load(scalars)
    to_p = tl.load(scalars + R)
    log_to_p = tl.load(scalars + 2 * R)
    flat = tl.load(scalars + 3 * R)
    square = tl.load(scalars + 4 * R)
    log = tl.load(scalars + 5 * R)
    target = tl.load(scalars + 6 * R)
    mean = tl.load(scalars + 7 * R)
    is_target = at == tl.load(columns + row)
    u = tl.load(z, mask=at < V, other=0.0)
    x = tl.where(is_target | (at >= V), float("-inf"), _cap(u, SOFTCAP)) - peak
    p = to_p * tl.exp(x)
    # Finite, so that a masked entry with p = 0 gets 0 and not NaN.
    log_p = log_to_p + _floored(x)
    dz = p * (flat + square * p + log * log_p) + tl.where(is_target, target, 0.0) + mean
    if SOFTCAP is not None:
        e = tl.exp(-2.0 * tl.abs(u / SOFTCAP))
        dz *= 4.0 * e / ((1.0 + e) * (1.0 + e))  # 1 - tanh^2, without its cancellation
    tl.store(z, dz, mask=at < V)


class TritonRows:
    """After `fold_` the buffer still holds the raw logits; after `grad_` all of dz, the target's term included."""

    block = 2**26  # enough work for every launch
    buffer = 2**27
    max_rows = 4096
    unit = 1.0

    def fold_(
        self, z: Tensor, targets: Tensor, needs: frozenset[str], start: int = 0, softcap: float | None = None
    ) -> Folded:
        assert z.stride(1) == 1
        column, here = locate(targets, start, z.shape[1])
        spans = triton.cdiv(z.shape[1], SPAN)
        out = z.new_empty(6, spans, len(z))
        if len(z):  # a GPU refuses to launch nothing
            with torch.cuda.device_of(z):
                _fold[(len(z), spans)](
                    z, torch.where(here, column, -1), out, *z.shape, z.stride(0),
                    SOFTCAP=softcap, BLOCK=BLOCK, SPAN=SPAN,
                )  # fmt: skip
        parts = Partial(*out)
        peak = parts.peak.amax(0)
        sums = (part.sum(0) for part in lift(parts, peak).columns()[1:])
        return Folded(z, column, here, Partial(peak, *sums), softcap)

    def grad_(self, folded: Folded, to_p: Tensor, slope: Slope, vocab: int) -> tuple[Tensor, Tensor]:
        z = folded.z
        log_to_p = to_p.clamp_min(torch.finfo(to_p.dtype).tiny).log()
        flat, square, log, target, mean = slope
        scalars = torch.stack((folded.partial.peak, to_p, log_to_p, flat, square, log, target, mean / vocab))
        columns = torch.where(folded.here, folded.column, -1)
        if len(z):
            with torch.cuda.device_of(z):
                _grad[(len(z), triton.cdiv(z.shape[1], BLOCK))](
                    z, columns, scalars, *z.shape, z.stride(0), SOFTCAP=folded.softcap, BLOCK=BLOCK
                )
        return torch.ones_like(to_p), torch.zeros_like(to_p)


def of_logits(logits: Tensor, scored: Scored, needs: frozenset[str] = EVERY, overwrite: bool = False) -> TokenStats:
    _require_gpu(logits)
    return logits_driver.of_logits(logits, scored, needs, overwrite, TritonRows())


def of_hidden(
    hidden: Tensor, head: Head, scored: Scored, needs: frozenset[str] = EVERY, guess: Guess | None = None
) -> TokenStats:
    _require_gpu(hidden)
    return speculate.of_hidden(hidden, head, scored, needs, guess, stage=TritonRows(), ranks=OneRank())


def _require_gpu(x: Tensor) -> None:
    compiled = isinstance(_fold, triton.JITFunction)
    if compiled and x.device.type == "cpu":
        raise RuntimeError(
            "kernel='triton' needs tensors on a GPU, and these are on the CPU: use kernel='auto' "
            "(or, to debug it, set TRITON_INTERPRET=1 before triton is imported)"
        )
