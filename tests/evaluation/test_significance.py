"""Resampling where the truth is known."""

import math
import random
import statistics

import numpy as np
import pytest

from errornorm.evaluation import metrics, significance
from errornorm.evaluation.metrics import Statistics
from errornorm.evaluation.significance import p_value, resampled, value
from tests.run_directories import sentences, translated


def mean(values):
    return Statistics([(v, 1.0) for v in values], lambda sums: sums[0] / sums[1])


def test_two_sided_p_by_hand():
    """|d* - 2| is 0, 1, 2, 2, 3 and 5: four of six are at least 2."""
    assert p_value(2.0, np.array([2.0, 1.0, 0.0, 4.0, 5.0, 7.0])) == (1 + 4) / (1 + 6)
    assert p_value(-2.0, -np.array([2.0, 1.0, 0.0, 4.0, 5.0, 7.0])) == (1 + 4) / (1 + 6)


def test_no_difference_at_all():
    assert p_value(0.0, np.zeros(99)) == 1


def test_resampled_means_scatter_by_the_standard_error():
    draw = random.Random(0)
    values = [draw.gauss(5, 2) for _ in range(400)]
    found = resampled(mean(values), 4000, 1)
    assert found.mean() == pytest.approx(statistics.fmean(values), abs=0.01)
    assert found.std() == pytest.approx(statistics.pstdev(values) / math.sqrt(400), rel=0.05)


def test_p_values_are_uniform_if_there_is_nothing_to_find():
    draw = random.Random(0)
    ps = []
    for _ in range(200):
        a, b = ([draw.gauss(0, 1) for _ in range(80)] for _ in range(2))
        found = resampled(mean(a), 200, 1) - resampled(mean(b), 200, 1)
        ps.append(p_value(value(mean(a)) - value(mean(b)), found))
    assert sum(p <= 0.05 for p in ps) / 200 == pytest.approx(0.05, abs=0.04)
    assert statistics.fmean(ps) == pytest.approx(0.5, abs=0.06)


def test_equal_seeds_draw_equal_sentences():
    values = [float(i) for i in range(50)]
    double = [2 * v for v in values]
    np.testing.assert_allclose(resampled(mean(double), 20, 3), 2 * resampled(mean(values), 20, 3))
    assert (resampled(mean(values), 20, 3) != resampled(mean(values), 20, 4)).any()


@pytest.mark.parametrize("name", metrics.VALUES)
def test_the_sum_of_sentences_is_the_corpus(name):
    (sources, references), outputs = sentences(), translated(0.3)
    outputs[0] = sources[0]
    names = ["rouge" if name.startswith("rouge") else name]
    values, _ = metrics.measure(names, outputs, references, sources)
    assert value(metrics.statistics([name], outputs, references, sources)[name]) == pytest.approx(
        values[name], rel=1e-12
    )


def test_a_long_test_is_resampled_in_lots(monkeypatch):
    values = [float(i % 7) for i in range(60)]
    monkeypatch.setattr(significance, "AT_ONCE", 60 * 7)
    found = resampled(mean(values), 50, 1)
    assert len(found) == 50
    assert len(set(found)) > 25
    monkeypatch.setattr(significance, "AT_ONCE", 1)  # a test that is longer than a lot
    assert len(resampled(mean(values), 5, 1)) == 5
