import numpy
import pytest

from errornorm.curation.mixture import bandwidth, binned, one_and_two, valley


def two_peaks(share, apart, num=4000, seed=0):
    random = numpy.random.default_rng(seed)
    return random.normal((random.random(num) < share) * apart)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_two_components_are_found(share):
    one, two = one_and_two(*binned(two_peaks(share, 4.0)))
    assert two.weights[1] == pytest.approx(share, abs=0.02)
    assert two.means == pytest.approx([0, 4], abs=0.15)
    assert two.distance() == pytest.approx(4, abs=0.3)
    assert two.log_likelihood > one.log_likelihood + 100


def test_chances():
    _, two = one_and_two(*binned(two_peaks(0.3, 5.0)))
    chances = two.upper(numpy.array([-20.0, 0.0, 2.5, 5.0, 20.0]))
    assert chances[0] == 0.0  # although the wider component may be higher there
    assert chances[1] < 0.01
    assert chances[3] > 0.99
    assert chances[4] > 0.99


def test_a_valley_and_none():
    centres, counts = binned(two_peaks(0.3, 5.0))
    depth, place = valley(centres, counts, bandwidth(centres, counts), 0.01)
    assert depth > 0.5
    assert centres[place] == pytest.approx(2.5, abs=0.5)
    centres, counts = binned(two_peaks(0.3, 1.0))
    assert valley(centres, counts, bandwidth(centres, counts), 0.01)[0] < 0.05


def test_a_few_outliers_are_no_peak():
    values = numpy.concatenate([two_peaks(0, 0), numpy.full(20, 30.0)])
    centres, counts = binned(values)
    assert valley(centres, counts, bandwidth(centres, counts), 0.01)[0] < 0.05


def test_equal_numbers():
    centres, counts = binned(numpy.ones(1000))
    one, two = one_and_two(centres, counts)
    assert numpy.isfinite(two.weights).all()
    assert one.means[0] == pytest.approx(1)
    assert valley(centres, counts, bandwidth(centres, counts), 0.01)[0] == 0
