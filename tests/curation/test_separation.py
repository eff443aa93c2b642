import math

import numpy
import pytest

from errornorm.curation.correlation import correlation, ranks
from errornorm.curation.separation import BARS, Cells, draw, interval


def brute_auroc(values, noisy):
    pairs = [(bad > good) + (bad == good) / 2 for bad in values[noisy] for good in values[~noisy]]
    return sum(pairs) / len(pairs)


def brute_average_precision(values, noisy):
    """The area under the steps of precision over recall, as scikit-learn defines it."""
    area, recall = 0.0, 0.0
    for cut in sorted(set(values), reverse=True):
        above = values >= cut
        found = noisy[above].sum() / noisy.sum()
        area += (found - recall) * noisy[above].mean()
        recall = found
    return area


@pytest.mark.parametrize("digits", [0, 1, 6])  # few digits: many ties
@pytest.mark.parametrize("num", [3, 20, 200])
def test_brute_force(digits, num):
    random = numpy.random.default_rng(num + digits)
    noisy = random.random(num) < 0.3
    noisy[:2] = True, False
    values = numpy.round(random.normal(noisy * 0.8), digits)
    exact = Cells(values, noisy).exact()
    assert exact["auroc"] == pytest.approx(brute_auroc(values, noisy))
    assert exact["average_precision"] == pytest.approx(brute_average_precision(values, noisy))
    assert 0 <= exact["overlap"] <= 1


def test_overlap_by_hand():
    values = numpy.concatenate([numpy.linspace(0, 1, 1001), numpy.linspace(0.5, 1, 1001)])
    noisy = numpy.repeat([False, True], 1001)
    # Densities 1 on all of it, and 2 on the upper half: they share one half.
    assert Cells(values, noisy).exact()["overlap"] == pytest.approx(0.5, abs=0.01)


def test_overlap_is_that_of_equal_bins():
    random = numpy.random.default_rng(1)
    noisy = random.random(5000) < 0.2
    values = random.gamma(1 + noisy)
    cells = Cells(values, noisy)
    kept = numpy.clip(values, cells.bars[0], cells.bars[-1])
    shares = [numpy.histogram(kept[side], cells.bars)[0] / side.sum() for side in (noisy, ~noisy)]
    assert len(shares[0]) == BARS
    assert cells.exact()["overlap"] == pytest.approx(numpy.minimum(*shares).sum())


@pytest.mark.parametrize("values", [numpy.ones(6), numpy.arange(6.0)])
def test_no_difference_and_all(values):
    noisy = numpy.arange(6) >= 3
    exact = Cells(values, noisy).exact()
    same = values[0] == values[-1]
    assert exact["auroc"] == (0.5 if same else 1.0)
    assert exact["average_precision"] == (0.5 if same else 1.0)
    assert exact["overlap"] == (1.0 if same else 0.0)


def test_resamples_are_those_of_repeated_texts():
    random = numpy.random.default_rng(2)
    texts = numpy.repeat(numpy.arange(40), 25)
    noisy = random.random(1000) < 0.3
    values = random.normal(noisy * 1.0)
    times = draw(40, 5, seed=3)
    assert (times.sum(1) == 40).all()
    cells = Cells(values, noisy)
    around = cells.resampled(texts, times)
    for resample, row in enumerate(times):
        copies = numpy.repeat(numpy.arange(1000), row[texts])
        exact = Cells(values[copies], noisy[copies]).exact()
        for name in ("auroc", "average_precision"):
            assert cells.exact()[name] + around[name][resample] == pytest.approx(exact[name], abs=2e-3), name


def test_intervals_hold_the_truth():
    """Units of a text have something in common; an interval that took them as independent would be too narrow."""
    inside, alone, rounds = 0, 0, 150
    truth = 0.5 * (1 + math.erf(1.0 / math.sqrt(2 * (1 + 1)) / math.sqrt(2)))
    for seed in range(rounds):
        random = numpy.random.default_rng(seed)
        texts = numpy.repeat(numpy.arange(100), 10)
        noisy = random.random(1000) < 0.4
        values = random.normal(size=100)[texts] + random.normal(noisy * 1.0)
        cells = Cells(values, noisy)
        value = cells.exact()["auroc"]
        for owners in (texts, numpy.arange(1000)):
            times = draw(owners[-1] + 1, 200, seed)
            low, high = interval(value, cells.resampled(owners, times)["auroc"])
            held = low <= truth <= high
            inside, alone = inside + (held and owners is texts), alone + (held and owners is not texts)
    assert 0.89 <= inside / rounds <= 0.99
    assert alone < inside


def test_interval_needs_resamples():
    assert interval(0.5, numpy.array([0.1, -0.1])) is None
    assert interval(math.nan, numpy.zeros(100)) is None
    assert interval(0.99, numpy.linspace(-0.1, 0.1, 100))[1] == 1.0


def test_rank_correlation():
    random = numpy.random.default_rng(0)
    shares = numpy.round(random.random(300), 1)
    values = shares + random.normal(size=300)
    whole, around = correlation(values, shares, draw(300, 200, 0))
    a, b = ranks(values), ranks(shares)
    assert whole == pytest.approx(numpy.corrcoef(a, b)[0, 1])
    assert abs(around.mean()) < 0.02
    assert 0.02 < around.std() < 0.1
    assert correlation(values, shares * 0, draw(300, 5, 0))[0] != 0  # NaN: nothing to go with
