import pytest

from tests.problems import weigh


def test_the_weight_is_a_mixture():
    assert weigh("mixce(0.3)", [0.1, 0.9], [0.5, 0.5]).weights.tolist() == pytest.approx([0.37, 0.65])
    assert weigh("mixce(1.0)", [0.1, 0.9]).weights.tolist() == [1]
