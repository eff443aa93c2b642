"""The numerics of the statistics."""

import math
import time

import pytest
import torch

from errornorm import TokenStats, token_stats
from errornorm.stats import COLUMNS, primitives

HALF = [torch.float32, torch.bfloat16, torch.float16]


def exact(logits, targets):
    """Loss and error norm in float64, by sums that do not cancel."""
    z = logits.double()
    others = z.scatter(-1, targets.unsqueeze(-1), -math.inf)
    peak = others.amax(-1, keepdim=True).clamp_min(-1e300)
    e = (others - peak).exp()
    mass, square = e.sum(-1), e.square().sum(-1)
    gap = (peak - z.gather(-1, targets.unsqueeze(-1))).squeeze(-1)
    odds = gap + mass.log()
    nll = torch.logaddexp(odds, torch.zeros_like(odds))
    return nll, -torch.expm1(-nll) * (1 + square / mass.square()).sqrt()


def relative(got, want):
    return ((got.double() - want) / want).abs().max().item()


@pytest.mark.parametrize("kernel", ["logits", "reference"])
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("vocab", [2, 3, 1000, 32_000, 256_000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 1e4])
def test_error_norm_keeps_its_digits(vocab, spread, dtype, kernel):
    torch.manual_seed(0)
    rows = max(4, min(64, 2**18 // vocab))
    logits = (torch.randn(rows, vocab) * spread / 3).clamp(-spread, spread).to(dtype)
    targets = torch.randint(vocab, (rows,))
    targets[::2] = logits[::2].float().argmax(-1)  # the model is right in half of the rows
    nll, norm = exact(logits, targets)
    stats = token_stats(logits=logits, targets=targets, kernel=kernel)
    visible = norm > 1e-6
    assert visible.any()
    if kernel == "logits":
        assert relative(stats.error_norm[visible], norm[visible]) < 5e-7
        assert relative(stats.nll[visible], nll[visible]) < 5e-7
    torch.testing.assert_close(stats.error_norm.double(), norm, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("level", [0.0, -700.0, 1e4])
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_from_certainly_right_to_certainly_wrong_with_a_masked_vocabulary(dtype, level):
    if dtype != torch.float32 and level == 1e4:
        level = 8192.0  # a number that all types hold; the gaps below are then multiples of 64
    gaps = torch.tensor([-1000.0, -200.0, -20.0, -4.0, 0.0, 4.0, 8.0, 12.0, 14.0, 17.0, 20.0])
    logits = torch.full((len(gaps), 1000), level)
    logits[:, 0] += gaps
    logits[:, 1] = logits[:, 2]
    logits[:, 500:] = -math.inf
    logits = logits.to(dtype)
    targets = torch.zeros(len(gaps), dtype=torch.long)
    nll, norm = exact(logits, targets)
    stats = token_stats(logits=logits, targets=targets)
    seen = norm > 1e-7
    assert relative(stats.error_norm[seen], norm[seen]) < 5e-7
    torch.testing.assert_close(stats.nll.double(), nll, rtol=5e-7, atol=0)


@pytest.mark.parametrize("distance", [5.7, 8.9, 11.3, 15.1])
def test_a_long_tail_of_equal_logits_does_not_add_up_its_roundings(distance):
    """Every term is rounded the same way: the least favourable sum."""
    logits = torch.full((6, 256_000), 0.1234567 - distance)
    logits[:, 7] = 0.1234567
    logits[:, 0] = torch.tensor([-3.3, 1.7, 5.1, 7.7, 9.9, 12.3])
    targets = torch.zeros(6, dtype=torch.long)
    assert relative(token_stats(logits=logits, targets=targets).error_norm, exact(logits, targets)[1]) < 5e-7


def test_confidence_reaches_both_ends_of_the_range():
    logits = torch.tensor([[40.0, 0.0], [0.0, 40.0], [200.0, 0.0], [0.0, 200.0], [14.0, 0.0]])
    stats = token_stats(logits=logits, targets=torch.zeros(5, dtype=torch.long))
    assert stats.error_norm[1] == pytest.approx(math.sqrt(2), rel=1e-7)
    assert stats.error_norm[3] == pytest.approx(math.sqrt(2), rel=1e-7)
    assert stats.error_norm[4] == pytest.approx(math.sqrt(2) / (1 + math.exp(14)), rel=5e-7)  # about 1e-6
    assert 0 <= stats.error_norm[2] < 1e-30
    assert stats.nll[3] == 200


def test_a_vocabulary_masked_down_to_the_target():
    logits = torch.full((2, 7), -math.inf)
    logits[:, 3] = 5.0
    stats = token_stats(logits=logits, targets=torch.tensor([3, 3]), statistics=("error_norm", "entropy"))
    assert stats.nll.tolist() == [0, 0]
    assert stats.error_norm.tolist() == [0, 0]
    assert stats.entropy.tolist() == [0, 0]


@pytest.mark.parametrize("kernel", ["logits", "reference"])
def test_entropy_and_mean_logit(kernel):
    torch.manual_seed(1)
    logits = torch.randn(20, 50) * 4
    stats = token_stats(logits=logits, targets=torch.randint(50, (20,)), kernel=kernel)
    p = logits.double().softmax(-1)
    torch.testing.assert_close(stats.entropy.double(), torch.special.entr(p).sum(-1), rtol=2e-6, atol=1e-6)
    torch.testing.assert_close(stats.mean_logit, logits.mean(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(stats.smooth.double(), -p.log().mean(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(stats.lse, logits.logsumexp(-1))


@pytest.mark.parametrize("gap", [5, 10, 15, 20, 30])
def test_entropy_of_a_token_that_is_certain_of_another_word(gap):
    logits = torch.randn(50, 32000, generator=torch.Generator().manual_seed(gap))
    logits[:, 7] = 10.0 + gap
    stats = token_stats(logits=logits, targets=torch.full((50,), 3), statistics=("entropy",))
    want = torch.special.entr(logits.double().softmax(-1)).sum(-1)
    torch.testing.assert_close(stats.entropy.double(), want, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4)])
def test_any_leading_shape(shape):
    logits, targets = torch.randn(*shape, 11), torch.randint(11, shape)
    stats = token_stats(logits=logits, targets=targets)
    want = -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    assert stats.nll.shape == shape
    torch.testing.assert_close(stats.nll, want)


def test_ignored_positions_are_zero_and_cost_nothing():
    logits = torch.randn(3, 4, 9)
    logits[0, 0] = math.nan  # nobody looks there
    targets = torch.randint(9, (3, 4))
    targets[0, 0] = targets[2, 3] = -100
    stats = token_stats(logits=logits, targets=targets)
    for column in stats.columns().values():
        assert column[0, 0] == 0
        assert column[2, 3] == 0
    other = token_stats(logits=logits, targets=torch.where(targets < 0, 7, targets), ignore_index=7)
    assert (other.nll == 0).sum() >= 2


@pytest.mark.parametrize("source", ["logits", "hidden"])
@pytest.mark.parametrize("column", COLUMNS)
def test_every_statistic_is_differentiable(column, source, small_chunks):
    torch.manual_seed(0)
    hidden = torch.randn(37, 16, dtype=torch.float64, requires_grad=True)
    weight = (torch.randn(301, 16, dtype=torch.float64) * 0.7).requires_grad_()
    targets, up = torch.randint(301, (37,)), torch.randn(37, dtype=torch.float64)
    given = {"logits": hidden @ weight.T} if source == "logits" else {"hidden": hidden, "weight": weight}
    reference = token_stats(logits=hidden @ weight.T, targets=targets, kernel="reference")
    got, want = (getattr(s, column) for s in (token_stats(**given, targets=targets), reference))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)
    for a, b in zip(*(torch.autograd.grad(x @ up, (hidden, weight)) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_error_norm_has_a_slope_where_it_vanishes():
    z = torch.tensor([[200.0, 0.0], [1.0, 0.0]], requires_grad=True)
    token_stats(logits=z, targets=torch.tensor([0, 0])).error_norm.sum().backward()
    assert (z.grad[0] == 0).all()
    assert z.grad[1].isfinite().all()
    assert (z.grad[1] != 0).all()


@pytest.mark.parametrize("upstream", [1.0, 1e-5, 1e-7])
def test_no_gradient_is_denormal(upstream):
    """They are many times slower than other numbers on many CPUs."""
    z = torch.randn(50, 300, generator=torch.Generator().manual_seed(0)) * torch.logspace(0, 2, 50).unsqueeze(1)
    z.requires_grad_()
    (token_stats(logits=z, targets=z.argmax(1)).nll.sum() * upstream).backward()
    tiny = torch.finfo(z.dtype).tiny
    assert not ((z.grad != 0) & (z.grad.abs() < tiny)).any()


def test_what_was_not_asked_for_says_how_to_get_it():
    stats = token_stats(logits=torch.randn(2, 5), targets=torch.tensor([0, 1]), statistics=())
    assert list(stats.columns()) == ["nll", "lse"]
    with pytest.raises(AttributeError, match=r"statistics=\('entropy',\)"):
        stats.entropy  # noqa: B018
    with pytest.raises(AttributeError, match="error_norm was not computed"):
        stats.error_norm  # noqa: B018
    with pytest.raises(AttributeError, match="it has nll"):
        stats.error_nrom  # noqa: B018
    with pytest.raises(ValueError, match="unknown statistics"):
        primitives(["loudness"])
    assert primitives(["error_norm", "smooth"]) == {"nll", "lse", "off_target", "mean_logit"}
    assert primitives("error_norm") == {"nll", "lse", "off_target"}
    with pytest.raises(ValueError, match="no columns"):
        TokenStats(loudness=torch.zeros(2))
    assert repr(TokenStats(nll=torch.zeros(2, 3))) == "TokenStats(nll=(2, 3))"


@pytest.mark.parametrize("source", ["logits", "hidden"])
def test_a_wide_spread_costs_no_denormals(source):
    """Probabilities below the smallest normal number make a CPU many times slower; ours never compute with them."""
    torch.manual_seed(0)
    basis = torch.randn(64, 64)
    targets = torch.randint(4000, (128,))

    def seconds(nats):
        weight = torch.randn(4000, 64, generator=torch.Generator().manual_seed(1)) / 8
        hidden = (torch.randn(128, 64, generator=torch.Generator().manual_seed(2)) @ basis / 8).requires_grad_()
        with torch.no_grad():
            z = hidden @ weight.T
            hidden.mul_(nats / (z.amax() - z.amin()))
        given = {"hidden": hidden, "weight": weight} if source == "hidden" else {"logits": hidden @ weight.T}
        begin = time.process_time()
        token_stats(**given, targets=targets, statistics=("error_norm",)).nll.sum().backward()
        return time.process_time() - begin

    seconds(10)
    ordinary, wide = (min(seconds(nats) for _ in range(7)) for nats in (10, 200))
    assert wide < 2 * ordinary
