import math

import pytest

from tests.problems import weigh


def test_drops_the_surprise_and_not_the_confident_conflict():
    terms = weigh("token_loss_truncation(0.34)", [0.1, 0.3, 0.3, 0.3], [0.15, 0.84, 0.01], [0.9, 0.1])
    assert terms.weights.tolist() == [0, 1, 1]
    assert terms.cutoff == pytest.approx(-math.log(0.15))
