import math

import pytest

from tests.problems import weigh


def test_between_likelihood_and_absolute_error():
    assert weigh("generalized_ce(0.7)", [0.1, 0.9]).total.item() == pytest.approx((1 - 0.1**0.7) / 0.7)
    assert weigh("generalized_ce(1.0)", [0.1, 0.9]).total.item() == pytest.approx(0.9)
    assert weigh("generalized_ce(1e-9)", [0.1, 0.9]).total.item() == pytest.approx(-math.log(0.1))
