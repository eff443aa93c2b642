"""Charts: labels that never overlap, ticks that enclose, numbers left out or thinned."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from errornorm.demo import charts


@given(st.lists(st.floats(0, charts.HEIGHT), min_size=1, max_size=12))
def test_labels_of_lines_never_overlap_and_keep_their_order(ends):
    places = charts.spread(ends)
    assert all(0 <= place <= charts.HEIGHT for place in places)
    ordered = [place for _, place in sorted(zip(ends, places, strict=True))]
    assert all(b - a >= charts.GAP for a, b in pairwise(ordered))


@given(st.floats(-100, 100), st.floats(0, 1000))
def test_ticks_are_few_and_enclose_the_values(low, extent):
    marks = charts.ticks(low, low + extent)
    assert 2 <= len(marks) <= 8
    assert marks == sorted(set(marks))
    assert marks[0] <= low + 1e-4
    assert marks[-1] >= low + extent - 1e-4


def test_a_chart_leaves_out_what_is_not_finite_and_says_its_last_values():
    series = [
        charts.Series("a", "m1", [0, 5, 10], [1.0, math.nan, 2.0]),
        charts.Series("b", "m2", [0, 5, 10], [math.inf] * 3),
        charts.Series("c", "m3", [], []),
    ]
    drawn = charts.chart("Loss", series, "{:.1f}".format)
    (line,) = drawn.lines
    assert line.points == "0.0,220.0 1000.0,0.0"
    assert drawn.summary == "Loss. At the end: a 2.0."
    assert [tick.text for tick in drawn.across] == ["0", "2", "4", "6", "8", "10"]
    assert not charts.chart("Loss", series[1:], str).lines


def test_a_loss_that_falls_far_is_on_a_log_scale():
    drawn = charts.chart("Loss", [charts.Series("a", "m1", [0, 1], [8.0, 2.0])], "{:.0f}".format)
    assert drawn.title == "Loss, log scale"
    assert [tick.text for tick in drawn.down] == ["2", "3", "5", "7"]
    assert drawn.lines[0].points == "0.0,0.0 1000.0,220.0"


def test_many_steps_are_thinned_and_the_last_stays():
    series = charts.Series("a", "m1", list(range(10_001)), [1.0 + s for s in range(10_001)])
    points = charts.chart("x", [series], str).lines[0].points.split()
    assert len(points) <= charts.MAX_POINTS + 1
    assert points[-1] == "1000.0,0.0"
