"""The Triton kernel without a GPU: its numbers in Triton's interpreter, and that it compiles for real targets.

The interpreter must be chosen before triton is imported. So the functions here named check_* are the tests of a second
pytest process, which `test_numbers_in_the_interpreter` starts.
"""

import importlib
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from errornorm import METHODS, RobustLoss, mle, token_stats
from errornorm.head import Head, widened
from errornorm.partials import merge
from errornorm.stats import EVERY, TokenStats
from tests.problems import HIDDEN, VOCAB, Problem, problem, terms_and_grads

triton = pytest.importorskip("triton")
kernel = importlib.import_module("errornorm.kernels.triton")

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
HEADS = [{}, {"scale": 0.3}, {"softcap": 4.0}, {"scale": 2.0, "softcap": 5.0}]
INF = float("inf")
reference = partial(token_stats, kernel="reference")
ours_stats = partial(token_stats, kernel="triton")


def test_numbers_in_the_interpreter():
    here = Path(__file__)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_functions=check_*", str(here)],
        cwd=here.parents[2], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        pytest.fail(run.stdout + run.stderr, pytrace=False)


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize(("arch", "dtype"), [(80, "fp32"), (90, "fp32"), (90, "fp64")])
@pytest.mark.parametrize("name", ["_fold", "_grad"])
def test_compiles_ahead_of_time(name, arch, dtype, softcap, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # really compile
    program = getattr(kernel, name)
    types = {"columns": "*i64", "R": "i32", "V": "i32", "stride": "i32"}
    types |= dict.fromkeys(("z", "out", "scalars"), f"*{dtype}")
    constants = {"SOFTCAP": softcap, "BLOCK": kernel.BLOCK, "SPAN": kernel.SPAN}
    source = triton.compiler.ASTSource(
        program,
        signature={arg: types.get(arg, "constexpr") for arg in program.arg_names},
        constexprs={arg: value for arg, value in constants.items() if arg in program.arg_names},
    )
    built = triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", arch, 32))
    assert f".target sm_{arch}" in built.asm["ptx"]
    assert f".entry {name}" in built.asm["ptx"]
    assert built.asm["cubin"][:4] == b"\x7fELF"
    # A maximum with the floor, -40, that swallows NaN: the interpreter's does not, so only this shows it.
    assert not re.search(r"\bmax\.f32.*0fC2200000", built.asm["ptx"])


def test_refuses_cpu_tensors():
    targets = torch.tensor([1, 2])
    with pytest.raises(RuntimeError, match=r"needs tensors on a GPU.*use kernel='auto'"):
        token_stats(logits=torch.randn(2, 5), targets=targets, kernel="triton")
    with pytest.raises(RuntimeError, match=r"needs tensors on a GPU.*use kernel='auto'"):
        token_stats(hidden=torch.randn(2, 3), weight=torch.randn(5, 3), targets=targets, kernel="triton")


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "errornorm.kernels.triton")
    with pytest.raises(ImportError, match=r"^kernel='triton' needs the triton package: pip install errornorm\[gpu\]$"):
        importlib.import_module("errornorm.kernels.triton")


def assert_no_worse(got, plain, gold):
    """As near to the float64 numbers as the plain formula in float32, and a few roundings."""
    allowed = (plain.double() - gold).abs().max() + 8 * torch.finfo(torch.float32).eps * gold.abs().max()
    assert (got.double() - gold).abs().max() <= allowed


def plain_stats(*, targets, logits=None, hidden=None, **head):
    """The formulas as one would write them down, in float32."""
    z = widened(logits) if hidden is None else Head(**head).logits(hidden)
    log_p, valid = z.log_softmax(-1), targets != -100
    p, at = log_p.exp(), targets.where(valid, 0).unsqueeze(-1)
    columns = {
        "nll": -log_p.gather(-1, at).squeeze(-1),
        "lse": z.logsumexp(-1),
        "mean_logit": z.mean(-1),
        "off_target": p.square().scatter(-1, at, 0.0).sum(-1),
        "entropy": -(p * log_p).sum(-1),
    }
    return TokenStats(**columns).map(lambda column: column.where(valid, 0.0))


def stats_and_grads(p, source, run, head):
    """Every column, and what a random gradient of each alone sends back to the leaves."""
    leaves = p.leaves()
    if source == "hidden":
        given = {**dict(zip(("hidden", "weight", "bias"), leaves, strict=True)), **head}
    else:
        leaves, given = (p.hidden,), {"logits": p.hidden}
    stats = run(targets=p.targets, **given)
    grads = {}
    for i, (column, values) in enumerate(stats.columns().items()):
        upstream = torch.randn(values.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        grads[column] = torch.autograd.grad(values, leaves, upstream.to(values), retain_graph=True)
    return stats, grads


def same_input(p, dtype, source):
    """A problem in `dtype`, and the same numbers in float64."""
    if source == "hidden":
        return p.to(dtype), p.to(torch.float64)
    # The logits themselves are the input: hidden states of vocabulary size, under a head that is the identity.
    z = F.linear(p.hidden, p.weight, p.bias).to(dtype).double()
    eye = torch.eye(VOCAB, dtype=torch.float64)
    exact = Problem(z, eye, torch.zeros(VOCAB, dtype=torch.float64), p.targets, p.ref_nll, p.token_weight)
    return exact.to(dtype), exact.to(torch.float64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("source", "head"), [("logits", {}), *(("hidden", head) for head in HEADS)], ids=str)
def check_every_column_and_its_gradient(source, head, dtype):
    ours, exact = same_input(problem(rows=1, time=6, dtype=dtype), dtype, source)
    gold, gold_grads = stats_and_grads(exact, source, reference, head)
    plain, plain_grads = stats_and_grads(ours, source, plain_stats, head)
    got, grads = stats_and_grads(ours, source, ours_stats, head)
    for name, values in got.columns().items():
        assert_no_worse(values, plain.columns()[name], gold.columns()[name])
        for grad, own, want in zip(grads[name], plain_grads[name], gold_grads[name], strict=True):
            assert grad.dtype == dtype
            assert_no_worse(grad, own, want)


@pytest.mark.parametrize(("source", "smoothing"), [("hidden", 0.0), ("hidden", 0.1), ("logits", 0.1)])
@pytest.mark.parametrize("case", [*METHODS, "ent_fraction(0.3)", "ent_threshold(1.0)"])
def check_every_method(case, source, smoothing):
    ours, exact = same_input(problem(rows=2, time=5), torch.float32, source)
    options = {"label_smoothing": smoothing, "steps": 1}
    gold, gold_grads = terms_and_grads(case, exact, source, "reference", **options)
    plain, plain_grads = terms_and_grads(case, ours, source, "reference", **options)
    got, grads = terms_and_grads(case, ours, source, "triton", **options)
    assert (got.num_tokens, got.num_kept) == (gold.num_tokens, gold.num_kept)
    torch.testing.assert_close(got.weights.double(), gold.weights, rtol=2e-6, atol=1e-7)
    assert_no_worse(got.total, plain.total, gold.total)
    for grad, own, want in zip(grads, plain_grads, gold_grads, strict=True):
        assert_no_worse(grad, own, want)
    if case in ("ent_fraction(0.3)", "ent_threshold(1.0)"):
        assert 0 < got.num_kept < got.num_tokens
    if not (case == "tailr" or (smoothing and case == "weighted")):
        assert (grads[0][got.weights == 0] == 0).all()


@pytest.mark.parametrize("vocab", [2, 3, 1000, 1024, 5003])
def check_vocabularies_of_any_size(vocab):
    targets = torch.tensor([0, vocab - 1, vocab // 2])
    z = 3 * torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab))
    upstream = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))

    def both(run, z):
        z.requires_grad_()
        columns = torch.stack(list(run(logits=z, targets=targets).columns().values()))
        return columns, *torch.autograd.grad(columns, z, upstream.to(z))

    gold, plain, got = both(reference, z.double()), both(plain_stats, z.clone()), both(ours_stats, z.clone())
    for a, b, c in zip(got, plain, gold, strict=True):
        assert_no_worse(a, b, c)


def check_large_vocabularies_keep_their_digits():
    vocab = 2**18 + 7
    z = torch.full((2, vocab), -9.7123)  # one row is a long level tail below a peak, the other is spread out
    z[1] = 5 * torch.randn(vocab, generator=torch.Generator().manual_seed(0))
    z[0, 7] = 0.0
    z[:, 9] = z.amax(1) + 12  # the target is all but sure
    targets = torch.tensor([9, 9])
    got, gold = ours_stats(logits=z, targets=targets), reference(logits=z.double(), targets=targets)
    for name in ("error_norm", "nll", "entropy"):
        torch.testing.assert_close(getattr(got, name).double(), getattr(gold, name), rtol=5e-7, atol=0)


def check_extreme_logits():
    z = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, 40.0], [0.0, 0.0, 200.0], [1e30, 0.0, -1e30]])
    targets = torch.tensor([1, 2, 2, 0])
    got = ours_stats(logits=z, targets=targets)
    torch.testing.assert_close(got.nll, torch.tensor([2e4, 2 * 2.718281828**-40, 0.0, 0.0]))
    torch.testing.assert_close(got.error_norm, torch.tensor([2**0.5, 6**0.5 * 2.718281828**-40, 0.0, 0.0]))
    assert (got.entropy >= 0).all()


def check_masked_vocabulary():
    """Masked entries get exactly no gradient, also where nothing but the target is left."""
    z = torch.tensor([[-INF, 3.0, 1.0, 0.5], [-INF, 3.0, -INF, -INF], [0.0, -1.0, -INF, 2.0]]).requires_grad_()
    targets = torch.tensor([1, 1, 0])
    columns = ("nll", "lse", "off_target", "entropy")  # the mean logit is -inf
    got = ours_stats(logits=z, targets=targets, statistics=columns)
    exact = z.detach().double().masked_fill(z.isinf(), -1e4).requires_grad_()
    gold = reference(logits=exact, targets=targets, statistics=columns)
    for name in columns:
        torch.testing.assert_close(got.columns()[name].double(), gold.columns()[name], rtol=1e-6, atol=1e-12)
        (grad,) = torch.autograd.grad(got.columns()[name].sum(), z, retain_graph=True)
        (want,) = torch.autograd.grad(gold.columns()[name].sum(), exact, retain_graph=True)
        torch.testing.assert_close(grad.double(), want, rtol=1e-6, atol=1e-7)
        assert (grad[z.isinf()] == 0).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, of inf - inf
@pytest.mark.parametrize("column", [1, 4], ids=["target", "other"])
@pytest.mark.parametrize("bad", [float("nan"), INF])
def check_bad_logits_raise(bad, column):
    hidden, weight = torch.randn(1, 3, HIDDEN), torch.randn(7, HIDDEN)
    logits = (hidden @ weight.T).clone()
    logits[0, 1, column] = bad
    targets = torch.ones(1, 3, dtype=torch.long)
    loss = RobustLoss(mle(), kernel="triton")
    with pytest.raises(FloatingPointError, match=r"1 of 3 tokens have NaN or Inf.* \[0, 1\]"):
        loss(logits=logits.requires_grad_(), targets=targets)
    bias = torch.zeros(7)
    bias[column] = bad
    with pytest.raises(FloatingPointError, match="the head's bias has NaN"):
        loss(hidden=hidden.requires_grad_(), weight=weight, bias=bias, targets=targets)


@pytest.mark.parametrize("source", ["logits", "hidden"])
@pytest.mark.parametrize("rows", [0, 2])
def check_nothing_to_score(rows, source):
    hidden, weight = torch.randn(rows, 3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    targets = torch.full((rows, 3), -100)
    given = {"logits": hidden} if source == "logits" else {"hidden": hidden, "weight": weight}
    terms = RobustLoss(mle(), label_smoothing=0.1, kernel="triton")(targets=targets, **given)
    assert terms.num_tokens == 0
    terms.mean.backward()
    assert all((x.grad == 0).all() for x in given.values())


def check_overwritten_logits():
    z = torch.randn(2, 3, 9)
    targets = torch.tensor([[1, -100, 2], [3, 4, -100]])
    want = z.clone().requires_grad_()
    F.cross_entropy(want.flatten(0, 1), targets.flatten(), reduction="sum").backward()
    leaf = z.clone().requires_grad_()
    logits = leaf * 1.0
    RobustLoss(mle(), kernel="triton", overwrite_logits=True)(logits=logits, targets=targets).total.backward()
    torch.testing.assert_close(leaf.grad, want.grad)
    torch.testing.assert_close(logits.detach(), want.grad)


@pytest.mark.parametrize("softcap", [None, 3.0])
def check_slices_of_the_vocabulary_merge(softcap):
    vocab, cut = kernel.SPAN + 900, kernel.SPAN // 2 + 3
    z = torch.randn(3, vocab, dtype=torch.float64)
    z[1, :cut] = -INF  # a slice with nothing in it
    targets = torch.tensor([5, vocab - 1, cut])
    fold = kernel.TritonRows().fold_
    whole = fold(z, targets, EVERY, 0, softcap)
    left, right = fold(z[:, :cut], targets, EVERY, 0, softcap), fold(z[:, cut:], targets, EVERY, cut, softcap)
    assert left.here.tolist() == [True, False, False]
    for a, b in zip(merge(left.partial, right.partial).columns(), whole.partial.columns(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def check_soft_cap_keeps_its_digits(dtype):
    sizes = torch.tensor([1e-6, 1e-3, 0.5, 17.9, 18.1, 40.0, 300.0, 1e5], dtype=dtype)
    z = torch.cat((sizes, -sizes)).expand(16, 16).contiguous()
    got = kernel.TritonRows().fold_(z, torch.arange(16), EVERY, 0, 30.0).partial.target
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), 30 * (z[0].double() / 30).tanh(), rtol=4 * eps, atol=0)


@pytest.mark.parametrize("softcap", [None, 2.0])
def check_against_finite_differences(softcap):
    """In float64, as a gradient check needs it."""
    g = torch.Generator().manual_seed(0)
    leaves = [torch.randn(*s, generator=g, dtype=torch.float64, requires_grad=True) for s in ((2, 2), (4, 2), (4,))]

    def columns(hidden, weight, bias):
        stats = ours_stats(hidden=hidden, weight=weight, bias=bias, softcap=softcap, targets=torch.tensor([1, 3]))
        return tuple(stats.columns().values())

    assert torch.autograd.gradcheck(columns, leaves)
