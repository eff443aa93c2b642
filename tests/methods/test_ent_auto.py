import math

import pytest
import torch

from errornorm import RobustLoss, ent_auto
from errornorm.units import Layout
from tests.problems import weigh

DISPUTED = [0.3, 0.7]  # norm 0.990
AGREED = [0.9, 0.1]
CERTAIN = [0.99, 0.01]
HARD = [0.05] * 20
COPY = [DISPUTED, *[CERTAIN] * 5]
EASY = [AGREED, *[CERTAIN] * 5]
TRANSLATION = [DISPUTED, *[HARD] * 5]


def kept(*sequences, steps=2):
    rows = [row for sequence in sequences for row in sequence]
    return weigh("ent_auto", *rows, shape=(len(sequences), len(sequences[0])), steps=steps).weights[:, 0].tolist()


def test_drops_what_is_certain_but_for_its_opening():
    assert kept(COPY, EASY, TRANSLATION) == [0, 1, 1]


def test_a_sequence_goes_as_a_whole():
    weights = weigh("ent_auto", *COPY, *TRANSLATION, shape=(2, 6), steps=2).weights
    assert weights.tolist() == [[0] * 6, [1] * 6]


def test_it_waits_until_it_knows_how_hard_tokens_are():
    assert kept(COPY, EASY, TRANSLATION, steps=1) == [1, 1, 1]


def test_while_nothing_is_certain_nothing_is_dropped():
    unsure = [[0.04, 0.6, *[0.02] * 18], *[HARD] * 5]
    assert kept(unsure, TRANSLATION) == [1, 1]


def test_a_strong_conflict_is_enough_whatever_follows():
    sure = [[0.01, 0.99], *[HARD] * 5]  # norm 1.400
    assert kept(sure, TRANSLATION) == [0, 1]


def test_the_bound_is_the_one_of_the_card():
    level = (-math.log(0.99) * 10 - math.log(0.3) - math.log(0.9)) / 12  # of COPY and EASY together
    rest = (5 * -math.log(0.99) / level + 1) / 6
    for norm, want in ((0.999, 1), (1.001, 0)):
        bound = (math.sqrt(0.5) + 0.5 * rest) * norm
        p = 1 - bound / math.sqrt(2)  # of two tokens: norm sqrt(2) (1 - p)
        loss = RobustLoss(ent_auto())
        first = torch.tensor([*COPY, *EASY], dtype=torch.float64).log().view(2, 6, 2).requires_grad_()
        loss(logits=first, targets=torch.zeros(2, 6, dtype=torch.long))
        loss.advance()
        probe = torch.tensor([[[p, 1 - p], *[CERTAIN] * 5]], dtype=torch.float64).log().requires_grad_()
        assert loss(logits=probe, targets=torch.zeros(1, 6, dtype=torch.long)).weights[0].tolist() == [want] * 6


def test_one_token_alone_must_be_in_strong_conflict():
    assert weigh("ent_auto", DISPUTED, AGREED, shape=(2, 1), steps=2).num_kept == 2
    assert weigh("ent_auto", [0.05, 0.95], AGREED, shape=(2, 1), steps=2).weights.tolist() == [[0], [1]]


def test_openings_of_ragged_and_packed_rows():
    layout = Layout(row=torch.tensor([0, 0, 0, 1, 1, 3]), ids=torch.tensor([0, 0, 1, 0, 0, 2]), num_tokens=6)
    assert layout.openings.tolist() == [0, 2, 3, 5]


def test_a_flat_batch_does_not_say_where_a_sequence_opens():
    with pytest.raises(ValueError, match="works on whole sequences"):
        weigh("ent_auto", DISPUTED, AGREED)
