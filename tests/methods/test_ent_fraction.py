import math

import pytest

from tests.problems import weigh

SYNONYMS = [0.1, 0.3, 0.3, 0.3]  # high loss, many good answers: norm sqrt(.81 + .27) = 1.039
ERROR = [0.15, 0.84, 0.01]  # lower loss, sure of another word: norm sqrt(.7225 + .7057) = 1.195
FINE = [0.9, 0.1]


def test_drops_the_confident_conflict_and_not_the_surprise():
    terms = weigh("ent_fraction(0.34)", SYNONYMS, ERROR, FINE)
    assert terms.stats.error_norm.tolist() == pytest.approx([math.sqrt(1.08), math.sqrt(1.4282), math.sqrt(0.02)])
    assert terms.weights.tolist() == [1, 0, 1]
    assert terms.cutoff == pytest.approx(math.sqrt(1.08))
    assert terms.total.item() == pytest.approx(-math.log(0.1) - math.log(0.9))


def test_sequences_by_their_mean_norm():
    terms = weigh("ent_fraction(0.5, unit='sequence')", SYNONYMS, SYNONYMS, ERROR, FINE, shape=(2, 2))
    assert terms.weights.tolist() == [[0, 0], [1, 1]]  # 1.039 against (1.195 + 0.141) / 2


def test_the_running_scope_uses_the_steps_before():
    assert weigh("ent_fraction(0.34, scope='running')", SYNONYMS, ERROR, FINE, steps=1).num_kept == 3
    assert weigh("ent_fraction(0.34, scope='running')", SYNONYMS, ERROR, FINE, steps=2).weights.tolist() == [1, 0, 1]
