"""Likelihood until a step, or until the model is warm."""

import math

import pytest
import torch

from errornorm import RobustLoss, delayed, ent_fraction, focal, objective
from errornorm.methods import METHODS
from errornorm.running import BINS, Histogram
from tests.problems import weigh

UNSURE = [0.1] * 10  # norm sqrt(.81 + .09) = 0.949: surprised, and sure of nothing
ERROR = [0.15, 0.84, 0.01]  # norm 1.195: sure of another token
FINE = [0.9, 0.1]


def test_auto_waits_for_a_model_that_is_sure():
    cold = weigh("ent_fraction(0.5, start='auto')", UNSURE, FINE, steps=50)
    assert cold.num_kept == 2
    assert cold.cutoff is None
    begin = "ent_fraction(0.5, start='auto')"
    assert weigh(begin, ERROR, FINE, steps=1).num_kept == 2  # nothing is known before the first step is done
    assert weigh(begin, ERROR, FINE, steps=2).weights.tolist() == [0, 1]


def test_the_top_tenth_decides():
    few = weigh("ent_fraction(0.1, start='auto')", ERROR, *[FINE] * 19, steps=2)  # half of the top tenth is at 0.14
    enough = weigh("ent_fraction(0.1, start='auto')", ERROR, ERROR, *[FINE] * 18, steps=2)
    assert (few.num_kept, enough.num_kept) == (20, 18)


def test_once_warm_it_stays_so_and_a_checkpoint_knows():
    loss = RobustLoss(objective("ent_fraction(0.5, start='auto')"))

    def step(loss, *rows):
        width = max(map(len, rows))
        padded = torch.tensor([[*row, *[1e-30] * (width - len(row))] for row in rows]).log()
        terms = loss(logits=padded.requires_grad_(), targets=torch.zeros(len(rows), dtype=torch.long))
        loss.advance()
        return terms.num_kept

    assert step(loss, ERROR, FINE) == 2
    other = RobustLoss(objective("ent_fraction(0.5, start='auto')"))
    other.load_state_dict(loss.state_dict())
    assert [step(loss, UNSURE, FINE) for _ in range(100)] == [1] * 100
    assert step(other, UNSURE, FINE) == 1


@pytest.mark.parametrize("name", [name for name in METHODS if "truncation" in name or name.startswith(("ent", "rho"))])
def test_every_method_that_drops_can_start_by_itself(name):
    assert "start='auto'" in repr(METHODS[name](start="auto"))
    assert {"off_target"} <= METHODS[name](start="auto").needs


def test_a_start_is_a_step_or_auto():
    with pytest.raises(ValueError, match=r"start='auto' is for methods that weigh or drop tokens"):
        focal(start="auto")
    with pytest.raises(ValueError, match="start='later' must be a whole number"):
        ent_fraction(start="later")
    with pytest.raises(ValueError, match="start=-1 is an optimizer step: give 0 or more, or 'auto'"):
        delayed(ent_fraction(), -1)


def test_the_mean_of_the_top_of_a_histogram():
    scores = torch.linspace(0, 1, 1001)
    seen = Histogram(0.0, 1.0)
    assert seen.top_mean(seen.init(), 0.1) == 0.0
    state = seen.settle(seen.observe(scores, seen.init()))
    for share in (0.1, 0.25, 1.0):
        want = scores[-math.ceil(share * len(scores)) :].double().mean().item()
        assert seen.top_mean(state, share) == pytest.approx(want, abs=1e-3)
    assert seen.above(state)[0] == len(scores)
    assert seen.edge(BINS) == 1.0
