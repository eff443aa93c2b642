"""What the paper claims, as far as it is true, as properties."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errornorm import token_stats

logits_of = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=40)


def stats_of(row, target):
    return token_stats(logits=torch.tensor([row], dtype=torch.float64), targets=torch.tensor([target]))


def l1(row, target):
    p = torch.tensor(row, dtype=torch.float64).softmax(0)
    p[target] -= 1
    return p.abs().sum().item()


@settings(max_examples=300, deadline=None)
@given(logits_of, st.data())
def test_the_chain_of_bounds(row, data):
    """1/2 l2 <= 1/2 l1 = 1 - p <= sqrt(nll / 2), and the norm lies between 0 and the root of 2."""
    target = data.draw(st.integers(0, len(row) - 1))
    s = stats_of(row, target)
    norm, nll, wrong = s.error_norm.item(), s.nll.item(), -math.expm1(-s.nll.item())
    slack = 1e-12
    assert 0 <= norm <= math.sqrt(2) + slack
    assert norm / 2 <= wrong + slack
    assert abs(l1(row, target) / 2 - wrong) <= 1e-9
    assert wrong <= math.sqrt(nll / 2) + slack


@settings(max_examples=200, deadline=None)
@given(logits_of, logits_of, st.floats(0.01, 0.99))
def test_equal_loss_is_equal_l1_norm(a, b, p):
    """Whatever the rest looks like: give both targets probability p, and the l1 norms agree; change p, they do not."""

    def with_probability(row, p):
        rest = torch.tensor(row, dtype=torch.float64).logsumexp(0).item()
        return [rest + math.log(p / (1 - p)), *row]

    first, second = with_probability(a, p), with_probability(b, p)
    assert abs(stats_of(first, 0).nll.item() - stats_of(second, 0).nll.item()) < 1e-9
    assert abs(l1(first, 0) - l1(second, 0)) < 1e-9
    other = with_probability(b, p / 2)
    assert abs(l1(first, 0) - l1(other, 0)) > p / 2  # 2 (1 - p) against 2 (1 - p / 2)


@settings(max_examples=200, deadline=None)
@given(logits_of, st.data())
def test_the_error_norm_is_the_norm_of_the_error(row, data):
    target = data.draw(st.integers(0, len(row) - 1))
    p = torch.tensor(row, dtype=torch.float64).softmax(0)
    p[target] -= 1
    assert abs(stats_of(row, target).error_norm.item() - p.norm().item()) < 1e-12


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 0.5), st.integers(2, 30))
def test_of_equal_losses_the_most_confident_mistake_has_the_largest_norm(p, others):
    spread = [math.log(p)] + [math.log((1 - p) / others)] * others
    sure = [math.log(p), math.log((1 - p) * 0.99)] + [math.log((1 - p) * 0.01 / (others - 1))] * (others - 1)
    assert stats_of(spread, 0).error_norm < stats_of(sure, 0).error_norm


def test_figure_1_three_equal_losses_and_three_norms():
    """Synonyms, an untrained model, an error: the loss cannot tell them apart, the error norm ranks them."""
    p = 0.05
    synonyms = [p, 0.35, 0.3, 0.2, 0.1]
    untrained = [p] + [0.95 / 200] * 200
    error = [p, 0.93] + [0.02 / 3] * 3
    rows = [torch.tensor(x).log() for x in (synonyms, untrained, error)]
    stats = [token_stats(logits=row.unsqueeze(0), targets=torch.tensor([0])) for row in rows]
    losses = torch.cat([s.nll for s in stats])
    norms = torch.cat([s.error_norm for s in stats])
    torch.testing.assert_close(losses, torch.full((3,), -math.log(p)), rtol=1e-5, atol=0)
    assert norms.argmax() == 2
    assert norms.argmin() == 1
    assert norms[2] > 1.3 > 1.1 > norms[0] > norms[1]


def test_rankings_by_loss_and_by_error_norm_differ():
    surprised = torch.tensor([0.01] + [0.99 / 300] * 300).log()  # a higher loss, but no idea
    wrong = torch.tensor([0.05, 0.94] + [0.01 / 299] * 299).log()  # a lower loss, but sure of another word
    s = token_stats(logits=torch.stack([surprised, wrong]), targets=torch.zeros(2, dtype=torch.long))
    assert s.nll[0] > s.nll[1]
    assert s.error_norm[0] < s.error_norm[1]


def test_before_training_every_norm_is_about_one():
    s = token_stats(logits=torch.randn(50, 5000) * 0.02, targets=torch.randint(5000, (50,)))
    assert ((s.error_norm - 1).abs() < 1e-3).all()
