import numpy
import pytest

from errornorm.reporting.grid import LOSS, LOSS_UNIT, NORM, NORM_UNIT, above, count, places, whole

STEP = 50  # as in data.js


@pytest.mark.parametrize(("edges", "largest"), [(NORM, 1.4142136), (LOSS, 23.0)])
def test_what_is_above_a_threshold_is_counted_exactly_for_every_threshold(edges, largest):
    rng = numpy.random.default_rng(0)
    on_edges = edges[rng.integers(0, len(edges), 2000)]
    values = numpy.concatenate([rng.uniform(0, largest, 20_000), on_edges, numpy.nextafter(on_edges, 9)])
    values = values.astype(numpy.float32)
    counts = count(places(values, edges), edges)
    assert counts.sum() == len(values)
    assert above(counts).tolist() == [int((values.astype(numpy.float64) > edge).sum()) for edge in edges]


def test_counts_are_those_of_numpy_between_the_thresholds():
    values = numpy.random.default_rng(1).uniform(0.0001, 1.4149, 50_000)
    counts = count(places(values, NORM), NORM)
    assert counts[1:-1].tolist() == numpy.histogram(values, NORM)[0].tolist()
    assert (counts[0], counts[-1]) == (0, 0)


@pytest.mark.parametrize(("edges", "unit", "largest"), [(NORM, NORM_UNIT, 1.4142136), (LOSS, LOSS_UNIT, 19.9)])
def test_the_page_and_the_counts_agree_on_which_tokens_are_dropped(edges, unit, largest):
    rng = numpy.random.default_rng(2)
    near = edges[rng.integers(0, len(edges), 3000)].astype(numpy.float32)
    values = numpy.concatenate([near, numpy.nextafter(near, numpy.float32(9)), numpy.nextafter(near, numpy.float32(0))])
    values = numpy.concatenate([values, rng.uniform(0, largest, 3000).astype(numpy.float32)])
    numbers = numpy.array(whole(values, unit))
    for level in range(len(edges)):
        expected = values.astype(numpy.float64) > edges[level]
        assert numpy.array_equal(numbers > level * STEP, expected), level
    assert numpy.abs(numbers / unit - values).max() < 1.01 / unit


def test_what_is_no_number_is_above_nothing():
    odd = numpy.array([float("nan"), float("inf"), 0.0])
    assert places(odd, LOSS).tolist() == [0, len(LOSS), 0]
    assert whole(odd, LOSS_UNIT) == [-1, 10**9, 0]
