"""Exact counts, ties, and the running cutoffs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from errornorm import RobustLoss, ent_fraction, random_truncation, rho1, token_loss_truncation
from errornorm.cutoffs import BINS, fixed, running_fraction, top, top_fraction, window_fraction


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, math.sqrt(2)]), max_size=60), st.floats(0, 1))
def test_a_fraction_drops_an_exact_count_and_of_ties_the_earlier(scores, fraction):
    mask, cutoff = top_fraction(fraction).drop(torch.tensor(scores), {})
    count = math.floor(fraction * len(scores))
    assert int(mask.sum()) == count
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert sorted(mask.nonzero().flatten().tolist()) == sorted(order[:count])
    kept = [s for s, dropped in zip(scores, mask.tolist(), strict=True) if not dropped]
    if count and kept:
        assert cutoff == pytest.approx(max(kept))
    elif count:
        assert cutoff == -math.inf
    else:
        assert cutoff == math.inf


def test_the_count_is_the_floor_of_the_product_of_floats():
    assert int(top(torch.rand(100), int(0.29 * 100)).mask.sum()) == math.floor(0.29 * 100) == 28


METHODS = {
    "ent_fraction": ent_fraction,
    "ent_fraction, global": lambda fraction: ent_fraction(fraction, scope="global"),
    "token_loss_truncation": token_loss_truncation,
    "random_truncation": random_truncation,
    "rho1": lambda fraction: rho1(1 - fraction),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("padding", [0.0, 0.1, 0.3, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.29, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["ordinary", "all equal", "saturated"])
def test_any_share_of_padding_any_norms(fraction, padding, method, kind):
    torch.manual_seed(0)
    targets = torch.randint(1, 50, (8, 20))
    targets[torch.rand(8, 20) < padding] = -100
    logits = torch.randn(8, 20, 50) * 2
    if kind == "all equal":
        logits = torch.zeros(8, 20, 50)
    elif kind == "saturated":
        logits = torch.zeros(8, 20, 50)
        logits[..., 0] = 1000.0  # sure of token 0, which is never right: every norm is the root of 2
    terms = RobustLoss(METHODS[method](fraction))(
        logits=logits.requires_grad_(), targets=targets, ref_nll=torch.zeros(8, 20)
    )
    valid = int((targets != -100).sum())
    assert terms.num_tokens == valid
    assert terms.num_tokens - terms.num_kept == terms.dropped.sum() == math.floor(fraction * valid)
    assert torch.equal(terms.dropped, (terms.weights == 0) & (targets != -100))
    assert (terms.weights[targets == -100] == 0).all()


@pytest.mark.parametrize("fraction", [0.1, 0.34, 0.5])
def test_sequences_are_counted_and_dropped_whole(fraction):
    torch.manual_seed(0)
    targets = torch.randint(50, (10, 8))
    targets[3] = targets[7] = -100  # two sequences have no token at all
    logits = torch.randn(10, 8, 50, requires_grad=True)
    terms = RobustLoss(ent_fraction(fraction, unit="sequence"))(logits=logits, targets=targets)
    rows = [i for i in range(10) if i not in (3, 7)]
    assert all(len(set(terms.weights[i].tolist())) == 1 for i in rows)
    dropped = [i for i in rows if terms.weights[i, 0] == 0]
    means = terms.stats.error_norm.mean(1)
    assert sorted(dropped) == sorted(sorted(rows, key=lambda i: -means[i])[: int(fraction * 8)])


def test_a_threshold_keeps_what_equals_it():
    assert fixed(1.0).drop(torch.tensor([0.5, 1.0, 1.5]), {}).mask.tolist() == [False, False, True]


def test_the_running_cutoff_knows_only_previous_steps_and_finds_the_fraction():
    running = running_fraction(0.1, (0.0, math.sqrt(2)))
    state = running.init()
    scores = torch.rand(20_000) * math.sqrt(2)
    state = running.observe(scores, state)
    assert not running.drop(scores, state).mask.any()
    state = running.settle(state)
    mask, cutoff = running.drop(scores, state)
    assert mask.float().mean() == pytest.approx(0.1, abs=1e-3)
    assert cutoff == pytest.approx(0.9 * math.sqrt(2), abs=0.01)
    assert not state["pending"].any()


@pytest.mark.parametrize(
    ("saturated", "dropped"), [(0.0, 0.0), (0.02, 0.02), (0.12, 0.12), (0.19, 0.19), (0.21, 0.0), (1.0, 0.0)]
)
def test_the_running_cutoff_takes_a_full_bin_only_if_that_is_nearer_to_the_fraction(saturated, dropped):
    """All norms are about 1 at first: nothing must be dropped then, and neither must everything."""
    running = running_fraction(0.1, (0.0, math.sqrt(2)))
    scores = torch.ones(1000)
    scores[: int(saturated * 1000)] = math.sqrt(2)
    state = running.settle(running.observe(scores, running.init()))
    assert running.drop(scores, state).mask.float().mean() == pytest.approx(dropped)


def test_the_running_cutoff_forgets():
    running = running_fraction(0.5, (0.0, 1.0))
    state = running.init()
    for value in [0.2] * 5 + [0.8] * 60:
        state = running.settle(running.observe(torch.linspace(value - 0.1, value + 0.1, 100), state))
    assert running.drop(torch.zeros(1), state).cutoff == pytest.approx(0.8, abs=0.01)
    assert len(state["counts"]) == BINS


def test_the_window_waits_slides_and_takes_the_quantile():
    window = window_fraction(0.25, size=8, least=4)
    state = window.init()
    state = window.settle(window.observe(torch.tensor([1.0, 2.0, 3.0]), state))
    assert not window.drop(torch.tensor([99.0]), state).mask.any()
    state = window.settle(window.observe(torch.tensor([4.0]), state))
    mask, cutoff = window.drop(torch.tensor([3.2, 3.3]), state)
    assert cutoff == pytest.approx(3.25)
    assert mask.tolist() == [False, True]
    for _ in range(4):
        state = window.settle(window.observe(torch.tensor([10.0, 10.0, 10.0]), state))
    assert state["window"].tolist() == [10.0] * 8


def test_equal_scores_of_another_type_are_not_above_their_quantile():
    window = window_fraction(0.5, size=8, least=1)
    scores = torch.full((8,), 0.1, dtype=torch.float64)
    state = window.settle(window.observe(scores, window.init()))
    assert not window.drop(scores, state).mask.any()


def test_state_is_made_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        loss = RobustLoss(ent_fraction(scope="running"))
    loss(logits=torch.zeros(2, 3, requires_grad=True), targets=torch.tensor([0, 1]))
    loss.advance()
    assert loss.state["counts"].sum() == 2


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_a_step_that_is_larger_than_the_window(pieces):
    """The window is a fair part of it, whatever the order and the split; and so is what it keeps of an older step."""
    cut = window_fraction(0.5, 50, 0)
    state = cut.init()
    for chunk in torch.randperm(400, generator=torch.Generator().manual_seed(pieces)).float().chunk(pieces):
        state = cut.observe(chunk, state)
    state = cut.settle(state)
    assert len(state["window"]) == 50
    assert float(state["window"].median()) == pytest.approx(200, abs=8)
    once = cut.settle(cut.observe(torch.arange(400.0), cut.init()))
    assert torch.equal(state["window"], once["window"])
    state = cut.settle(cut.observe(torch.full((20,), 1e3), state))
    assert float(state["window"][:30].median()) == pytest.approx(200, abs=15)
