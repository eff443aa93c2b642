import math

import pytest

from tests.problems import weigh


def test_the_weight_is_the_entropy_of_twenty_equal_tokens_at_most():
    rows = [[1 / 40] * 40, [1 / 20] * 20, [0.25] * 4, [1e-6, 1 - 1e-6]]
    want = [1.0, 1.0, math.log(4) / math.log(20), 0.0]
    assert weigh("eaft", *rows).weights.tolist() == pytest.approx(want, abs=1e-5)
    assert weigh("eaft(2.0)", *rows).weights.tolist() == pytest.approx([w**2 for w in want], abs=1e-5)
