import math

import pytest

from tests.problems import weigh


def test_the_weight_is_the_probability():
    terms = weigh("dft", [0.1, 0.9], [0.5, 0.5])
    assert terms.weights.tolist() == pytest.approx([0.1, 0.5])
    assert terms.total.item() == pytest.approx(-0.1 * math.log(0.1) - 0.5 * math.log(0.5))
