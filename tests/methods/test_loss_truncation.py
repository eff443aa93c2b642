import math

import pytest

from errornorm import loss_truncation
from tests.problems import weigh

GOOD, BAD = [0.8, 0.2], [0.1, 0.3, 0.3, 0.3]
SPEC = "loss_truncation(0.3, window=100, min_count=4)"


def test_waits_for_its_window_then_drops_whole_sequences_by_mean_loss():
    rows = [GOOD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD, GOOD]
    assert weigh(SPEC, *rows, shape=(4, 2), steps=1).num_kept == 8
    terms = weigh(SPEC, *rows, shape=(4, 2), steps=2)
    assert terms.weights.tolist() == [[1, 1], [0, 0], [1, 1], [1, 1]]
    losses = [-math.log(0.8)] * 3 + [-(math.log(0.8) + math.log(0.1)) / 2]
    place = 0.7 * 3  # between the third and the fourth of four, linearly
    assert terms.cutoff == pytest.approx(losses[2] + (place - 2) * (losses[3] - losses[2]), rel=1e-6)


def test_by_default_a_thousand_sequences_come_first():
    assert weigh("loss_truncation(0.3)", GOOD, BAD, shape=(2, 1), steps=3).num_kept == 2


def test_a_window_that_no_quantile_can_be_taken_of_is_refused():
    with pytest.raises(ValueError, match="window=16777217 is a number of sequences: give 1 to 16,777,216"):
        loss_truncation(window=2**24 + 1)


def test_a_fraction_of_nothing_drops_nothing():
    assert weigh("loss_truncation(0, window=100, min_count=1)", GOOD, BAD, shape=(2, 1), steps=3).num_kept == 2
