import pytest

from tests.problems import weigh


def test_drops_above_the_threshold_however_many():
    rows = [[0.01, 0.97, 0.02], [0.02, 0.95, 0.03], [0.05, 0.9, 0.05], [0.9, 0.1]]
    norms = weigh("ent_threshold", *rows).stats.error_norm.tolist()
    assert norms == pytest.approx([x**0.5 for x in (1.9214, 1.8638, 1.715, 0.02)])
    assert weigh("ent_threshold", *rows).weights.tolist() == [0, 1, 1, 1]
    assert weigh("ent_threshold(1.35)", *rows).weights.tolist() == [0, 0, 1, 1]
    assert weigh("ent_threshold(1.35)", *rows).cutoff == pytest.approx(1.35)


@pytest.mark.parametrize(("threshold", "wrong"), [(1.35, 0.907), (1.38, 0.951), (1.40, 0.980)])
def test_what_the_paper_s_thresholds_mean(threshold, wrong):
    """A single wrong token needs about this much probability, the target having almost none."""
    above, below = (wrong + 0.004, wrong - 0.004)
    rest = [[1e-6, p, *[(1 - p) / 1000] * 1000] for p in (above, below)]
    assert weigh(f"ent_threshold({threshold})", *rest).weights.tolist() == [0, 1]


def test_an_untrained_model_loses_nothing():
    assert weigh("ent_threshold(1.1)", [1 / 500] * 500, [1 / 500] * 500).num_kept == 2
