"""What the picture shows."""

from errornorm.evaluation.picture import Series, _styles


def test_a_curve_over_seeds():
    series = Series("mle", [{1: 2.0, 2: 1.0, 3: 0.5}, {2: 3.0, 1: 4.0}], 0, None, "")
    assert series.band() == [(1, 2.0, 3.0, 4.0), (2, 1.0, 2.0, 3.0)]


def test_everyone_looks_different():
    series = [Series(f"m{i}", [], 0, None, "", baseline=i % 6 == 0) for i in range(12)]
    assert len({str(style) for style in _styles(series)}) == 12
