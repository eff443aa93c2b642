import math

import pytest

from tests.problems import weigh


def test_your_own_weights():
    terms = weigh("weighted", [0.1, 0.9], [0.5, 0.5], [0.2, 0.8], token_weight=[0.5, 0.0, 2.0])
    assert terms.weights.tolist() == [0.5, 0.0, 2.0]
    assert terms.num_kept == 2
    assert terms.total.item() == pytest.approx(-0.5 * math.log(0.1) - 2 * math.log(0.2))
