import math

import pytest

from tests.problems import weigh


def test_the_mean_of_minus_log_p():
    terms = weigh("mle", [0.5, 0.5], [0.25, 0.75])
    assert terms.weights.tolist() == [1, 1]
    assert terms.mean.item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert terms.cutoff is None
