"""Every method on every kernel, against the float64 reference. One set of invariants for all of them."""

import functools

import pytest
import torch
import torch.nn.functional as F

from errornorm import METHODS, RobustLoss, objective
from tests.problems import CASES, problem, same_numbers, terms_and_grads

pytestmark = pytest.mark.usefixtures("small_chunks")
KERNELS = [("hidden", "chunked"), ("hidden", "reference"), ("logits", "logits"), ("logits", "reference")]


@functools.cache
def references(case, source, dtype, smoothing):
    """A problem, what float64 says about it, and gradients in its own type: the same for all kernels."""
    p = problem(dtype=dtype)
    if source == "logits":  # the logits themselves are then the exact input
        p.hidden, p.weight, p.bias = logits_as_hidden(p, dtype)
    gold, gold_grads = terms_and_grads(case, p.to(torch.float64), source, "reference", label_smoothing=smoothing)
    _, plain_grads = terms_and_grads(case, p.to(dtype), source, "reference", label_smoothing=smoothing)
    return p, gold, gold_grads, plain_grads


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("source", "kernel"), KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_float64(case, source, kernel, dtype, smoothing):
    p, gold, gold_grads, plain_grads = references(case, source, dtype, smoothing)
    got, grads = terms_and_grads(case, p.to(dtype), source, kernel, label_smoothing=smoothing)
    same_numbers(got, grads, gold, gold_grads, plain_grads, dtype)
    dropped = got.weights == 0
    if not (case.startswith("tailr") or (smoothing and case == "weighted")):
        assert (grads[0][dropped] == 0).all()


def logits_as_hidden(p, dtype):
    """A head that is the identity, so that hidden states of vocabulary size are the logits, exactly."""
    z = F.linear(p.hidden, p.weight, p.bias).to(dtype).double()
    return z, torch.eye(z.shape[-1], dtype=torch.float64), torch.zeros(z.shape[-1], dtype=torch.float64)


@pytest.mark.parametrize("head", [{"scale": 0.3}, {"softcap": 4.0}, {"scale": 2.0, "softcap": 5.0}], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("case", CASES)
def test_scaled_and_capped_heads(case, smoothing, head):
    p = problem(1).to(torch.float64)
    gold, want = terms_and_grads(case, p, "hidden", "reference", head=head, label_smoothing=smoothing)
    got, grads = terms_and_grads(case, p, "hidden", "chunked", head=head, label_smoothing=smoothing)
    torch.testing.assert_close(got.total, gold.total, rtol=1e-10, atol=0)
    for a, b in zip(grads, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_weights_never_carry_gradient(case):
    terms, _ = terms_and_grads(case, problem().to(torch.float32), "hidden", "chunked")
    assert terms.weights.shape == (6, 11)
    assert (terms.weights >= 0).all()
    assert not terms.weights.requires_grad
    assert not any(column.requires_grad for column in terms.stats.columns().values())


@pytest.mark.parametrize(("source", "kernel"), KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_evaluation_is_plain_likelihood_and_touches_no_state(case, source, kernel):
    p = problem().to(torch.float32)
    loss = RobustLoss(objective(case), label_smoothing=0.1, kernel=kernel)
    logits = F.linear(p.hidden, p.weight, p.bias)
    given = (
        {"logits": logits} if source == "logits" else dict(zip(("hidden", "weight", "bias"), p.leaves(), strict=True))
    )
    loss(**given, **p.columns)
    loss.advance()
    before = loss.get_extra_state()
    want = F.cross_entropy(logits.flatten(0, 1), p.targets.flatten(), reduction="sum")
    with torch.no_grad():
        torch.testing.assert_close(loss(**given, targets=p.targets).total, want)
    loss.eval()
    terms = loss(**given, targets=p.targets)
    torch.testing.assert_close(terms.total, want)
    assert terms.cutoff is None
    assert terms.num_kept == terms.num_tokens
    after = loss.get_extra_state()
    assert str(before) == str(after)
    assert all(torch.equal(before["state"][name], after["state"][name]) for name in before["state"])


@pytest.mark.parametrize("name", METHODS)
def test_before_its_start_every_method_is_smoothed_likelihood(name):
    p = problem().to(torch.float32)
    loss = RobustLoss(METHODS[name](start=5), label_smoothing=0.1)
    got = loss(hidden=p.hidden, weight=p.weight, bias=p.bias, **p.columns)
    flat = F.linear(p.hidden, p.weight, p.bias).flatten(0, 1)
    want = F.cross_entropy(flat, p.targets.flatten(), reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(got.total, want)
    assert got.cutoff is None


@pytest.mark.parametrize("case", CASES)
def test_state_survives_a_checkpoint(case, tmp_path):
    batches = [problem(seed).to(torch.float32) for seed in range(6)]

    def run(loss, some):
        seen = []
        for p in some:
            terms = loss(hidden=p.hidden, weight=p.weight, **p.columns)
            loss.advance()
            seen.append((terms.total.detach(), terms.weights, terms.cutoff))
        return seen

    whole = run(RobustLoss(objective(case)), batches)
    first = RobustLoss(objective(case))
    run(first, batches[:3])
    torch.save(first.state_dict(), tmp_path / "loss.pt")
    second = RobustLoss(objective(case))
    second.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    for got, want in zip(run(second, batches[3:]), whole[3:], strict=True):
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])
        assert got[2] == want[2]


@pytest.mark.parametrize("case", CASES)
def test_gradcheck(case):
    """Against finite differences; the weights are constants of the objective, so they are held fixed."""
    p = problem(2, rows=2, time=4, ignored=0.1).to(torch.float64)
    small = [x.detach()[..., :5].clone() for x in (p.hidden, p.weight)]
    loss = RobustLoss(objective(case), label_smoothing=0.1, kernel="chunked")
    small[1] = small[1][:13]
    targets = torch.where(p.targets >= 0, p.targets % 13, -100)
    given = {"targets": targets, "ref_nll": p.ref_nll, "token_weight": p.token_weight}
    fixed = loss(hidden=small[0].requires_grad_(), weight=small[1].requires_grad_(), **given).weights

    def total(hidden, weight, kernel="chunked"):
        frozen = RobustLoss(hold(objective(case), fixed[targets != -100]), label_smoothing=0.1, kernel=kernel)
        return frozen(hidden=hidden, weight=weight, **given).mean

    # A first backward takes what forward speculated, a second one recomputes: equal up to rounding.
    assert torch.autograd.gradcheck(total, tuple(small), nondet_tol=1e-12)
    assert torch.autograd.gradcheck(
        lambda z: (
            RobustLoss(hold(objective(case), fixed[targets != -100]), label_smoothing=0.1)(logits=z, **given).mean
        ),
        ((small[0] @ small[1].T).detach().requires_grad_(),),
    )


def hold(inner, weights):
    from dataclasses import replace

    from errornorm.objectives import Weighed

    return replace(inner, weigh=lambda stats, state, now: Weighed(weights, None, state))
