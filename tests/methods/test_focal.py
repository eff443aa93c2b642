import math

import pytest

from tests.problems import weigh


def test_the_factor_takes_part_in_the_gradient():
    terms = weigh("focal(2.0)", [0.1, 0.9], [0.8, 0.2])
    assert terms.total.item() == pytest.approx(-0.81 * math.log(0.1) - 0.04 * math.log(0.8))
    assert terms.weights.tolist() == [1, 1]


def test_gamma_zero_is_likelihood():
    assert weigh("focal(0.0)", [0.1, 0.9]).total.item() == pytest.approx(-math.log(0.1))


def test_a_certain_token_has_a_finite_gradient():
    terms = weigh("focal(0.5)", [1.0, 1e-30])
    terms.mean.backward()
    assert terms.total.item() == pytest.approx(0, abs=1e-12)
