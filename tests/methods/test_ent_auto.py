import math

import numpy
import pytest
import torch

from errornorm import RobustLoss, objective
from errornorm.openings import LONG, ease, excess, hardest, lasts, learnt, rivals
from errornorm.units import Layout
from tests.problems import weigh

DISPUTED = [0.3, 0.7]  # norm 0.990
AGREED = [0.9, 0.1]
CERTAIN = [0.99, 0.01]
HARD = [0.05] * 20
COPY = [DISPUTED, *[CERTAIN] * 5]
EASY = [AGREED, *[CERTAIN] * 5]
TRANSLATION = [AGREED, *[HARD] * 5]
AMBIGUOUS = [DISPUTED, *[HARD] * 5]
KINDS = {"copy": COPY, "easy": EASY, "translation": TRANSLATION, "ambiguous": AMBIGUOUS}


def last_step(*phases, certain=LONG - 1):
    """The terms of the last step, of so many of each kind for so many steps, phase by phase.

    `certain`: steps before, all of them with too many certain sequences.
    """
    loss = RobustLoss(objective("ent_auto"))
    loss.state["certain_steps"] += certain
    for steps, counts in phases:
        texts = [KINDS[name] for name, count in counts.items() for _ in range(count)]
        p = torch.tensor([[[*row, *[0.0] * (20 - len(row))] for row in text] for text in texts])
        for _ in range(steps):
            terms = loss(logits=p.log().requires_grad_(), targets=torch.zeros(p.shape[:2], dtype=torch.long))
            loss.advance()
    return terms


def kept(steps=3, **counts):
    """The weights of one sequence of each kind, in a corpus with three times so many of each."""
    counts = {name: 3 * count for name, count in counts.items()}
    weights = last_step((steps, counts)).weights
    assert torch.equal(weights.amin(1), weights.amax(1))  # a sequence goes as a whole
    places = torch.tensor([0, *counts.values()]).cumsum(0)[:-1]
    return dict(zip(counts, weights[places, 0].tolist(), strict=True))


def test_drops_what_is_certain_but_for_its_opening():
    found = kept(copy=20, translation=40, ambiguous=20, easy=2)
    assert found == {"copy": 0, "translation": 1, "ambiguous": 1, "easy": 1}


def test_easy_text_may_open_in_several_ways():
    """Where agreed openings lead to certain text as often, a disputed one says nothing."""
    assert kept(copy=20, easy=20, translation=20, ambiguous=20)["copy"] == 1


def test_what_is_certain_for_long_is_noise_and_what_is_learnt_by_then_is_none():
    """A model knows how a fixed text goes on before it knows when it begins, if ever it does."""
    KINDS["unknown"] = [[0.01, 0.99], *[CERTAIN] * 5]
    others = {"translation": 40, "ambiguous": 20}
    wrong, right = {"unknown": 20} | others, {"easy": 20} | others
    for steps, dropped in ((LONG + 1, 0), (LONG + 2, 20 * 6)):  # nothing is known in the first step
        terms = last_step((steps, wrong), certain=0)
        assert terms.num_tokens - terms.num_kept == dropped
    terms = last_step((LONG // 2, wrong), (LONG, right), (1, wrong), certain=0)
    assert terms.num_kept == terms.num_tokens
    assert lasts(1.5 * LONG, 2 * LONG)
    assert not lasts(1.5 * LONG, 2 * LONG + 1)


def test_a_few_are_not_enough():
    assert kept(steps=1, copy=2, translation=40, ambiguous=40)["copy"] == 1
    assert kept(steps=3, copy=2, translation=40, ambiguous=40)["copy"] == 1


def test_it_waits_until_it_knows_how_hard_tokens_are():
    """In the first step nothing is known, after the second one there is something to compare with."""
    assert [kept(steps, copy=20, translation=40, ambiguous=20)["copy"] for steps in (1, 2, 3)] == [1, 1, 0]


def test_while_nothing_is_certain_nothing_is_dropped():
    assert kept(translation=40, ambiguous=40) == {"translation": 1, "ambiguous": 1}


def test_without_noise_it_is_likelihood_to_the_last_bit():
    def trained(name):
        torch.manual_seed(0)
        hidden, weight = torch.randn(40, 12, 16), torch.randn(500, 16, requires_grad=True)
        targets = torch.randint(500, (40, 12))
        loss = RobustLoss(objective(name))
        for _ in range(5):
            (grad,) = torch.autograd.grad(loss(hidden=hidden, weight=weight, targets=targets).mean, weight)
            loss.advance()
            weight = (weight - grad).detach().requires_grad_()
        return weight

    assert torch.equal(trained("ent_auto"), trained("mle"))


def test_one_token_alone_has_no_rest():
    rows = [DISPUTED] * 30 + [AGREED] * 30
    assert weigh("ent_auto", *rows, shape=(60, 1), steps=5).num_kept == 60


def test_names_of_classes_are_no_noise():
    """A class that is not learnt yet is disputed, and the rest of its name is certain."""
    rows = [DISPUTED, *[CERTAIN] * 3] * 30 + [AGREED, *[HARD] * 3] * 30
    assert weigh("ent_auto", *rows, shape=(60, 4), steps=5).num_kept == 240


def test_a_small_control_group_is_no_proof():
    """Disputed openings that say nothing, in long runs: no day on which chance looks like noise."""
    random = numpy.random.default_rng(0)
    for agreed, size in ((0.1, 16), (0.05, 32), (0.3, 64)):
        counts = numpy.zeros((2, 20))
        for _ in range(2000):
            sides = (random.random(size) > agreed).astype(int)
            numpy.add.at(counts, (sides, random.integers(20, size=size)), 1)
            counts *= 0.98
            assert excess(*counts.tolist()) == 0


def test_a_strong_conflict_is_enough_once_noise_was_found():
    """And before an average rest even odds are not."""
    KINDS["sure of another"] = [[0.01, 0.99], *[HARD] * 5]  # norm 1.400
    counts = {"copy": 20, "translation": 40, "ambiguous": 15, "sure of another": 1}
    assert kept(**counts) == {"copy": 0, "translation": 1, "ambiguous": 1, "sure of another": 0}
    assert kept(**counts | {"copy": 0})["sure of another"] == 1


RIVAL = [0.1, 0.9]  # known, and the model is sure of another one
KINDS |= {"rival": [RIVAL, *[HARD] * 5], "certain rival": [RIVAL, *[CERTAIN] * 5]}
HARDER = (20, 0)  # texts after rivals that are hard, and that are certain
SAME = (15, 5)  # as after agreed openings


def after(*phases):
    """The terms of the last step, when so many of the texts after rivals were hard and certain, phase by phase."""
    names = ("rival", "certain rival", "translation", "easy")
    return last_step(*((120, dict(zip(names, (*phase, 45, 15), strict=True))) for phase in phases), certain=0)


def test_text_after_rivals_that_becomes_easier_is_noise():
    """Long before it is certain twice as often as after agreed openings."""
    terms = after(HARDER, (12, 8))
    assert terms.weights[12, 0] == 0  # a rival with a certain rest
    assert terms.weights[20, 0] == 1  # an agreed opening
    assert after((12, 8)).num_kept == 80 * 6  # it never was harder: the model may only know short texts yet
    assert after(HARDER, SAME).num_kept == 80 * 6
    assert after(HARDER, (12, 8), (20, 0)).weights[0, 0] == 0  # what was found stays so


def test_rivals_are_known_and_another_has_even_odds():
    p, other = torch.tensor([0.06, 0.04, 0.3, 0.45, 0.06]), torch.tensor([0.9, 0.9, 0.51, 0.49, 0.1])
    assert rivals(other.square(), -p.log()).tolist() == [True, False, True, False, False]


def test_ease_is_a_difference_of_means_in_two_units():
    """1,000 texts with a mean norm of 0.6 and a deviation of 0.1; 200 with 0.55 and 0.2."""
    easier, error = ease([1000, 600, 370], [200, 110, 68.5])
    assert easier == pytest.approx(0.5)
    assert error == pytest.approx(((0.01 / 1000 + 0.04 / 200) / 1.98) ** 0.5 / 0.1)
    assert ease([1000, 600, 370], [99, 0, 0]) == (0, math.inf)


def found_at(*differences, error=0.02):
    """When rivals become easier by so much, one after the other: the place where that is noise, if any."""
    lowest = math.inf
    for place, easier in enumerate(differences):
        lowest = hardest(lowest, easier, error)
        if learnt(lowest, easier, error, share=0.02):
            return place
    return None


def test_rivals_are_compared_with_their_hardest_time_and_with_the_control_group():
    assert found_at(1.5, 0.9, 0.3, 0.0, -0.1, 0.1) is None  # clean text, everyday
    assert found_at(-0.9, -0.3, -0.1) is None  # easier than before, and still harder than the control group
    assert found_at(-0.4, 0.1, 0.19, 0.2) == 3
    assert found_at(0.8, 0.7, 0.9, 0.95) == 3  # never harder: in a language with many endings copies are easy at once
    assert found_at(0.8, 0.7, 0.9, 0.95, error=0.05) is None  # that may be chance
    assert found_at(0.0, 0.5, error=math.inf) is None  # too few texts


@pytest.mark.parametrize(
    ("agreed", "disputed", "share"),
    [
        ([0] * 20, [0] * 20, 0),
        ([0] * 20, [100] * 20, 0),  # nothing to compare with
        ([100] * 20, [0] * 20, 0),
        ([10] * 20, [60] * 4 + [10] * 16, 160 / 600),  # 240 instead of 80
        ([10] * 20, [10] * 16 + [60] * 4, 0),  # hard texts with disputed openings are no copies
        ([1] * 20, [3] * 4 + [1] * 16, 0),  # chance
    ],
)
def test_the_control_group(agreed, disputed, share):
    assert excess(agreed, disputed) == pytest.approx(share, rel=0.05)


def test_openings_of_ragged_and_packed_rows():
    layout = Layout(row=torch.tensor([0, 0, 0, 1, 1, 3]), ids=torch.tensor([0, 0, 1, 0, 0, 2]), num_tokens=6)
    assert layout.openings.tolist() == [0, 2, 3, 5]


def test_sequences_of_any_number():
    far = torch.iinfo(torch.int64)
    layout = Layout(
        row=torch.tensor([0, 0, 1, 1, 1]), ids=torch.tensor([far.min, far.max, far.min, 0, far.max]), num_tokens=5
    )
    assert layout.num_sequences == 5


def test_a_flat_batch_does_not_say_where_a_sequence_opens():
    with pytest.raises(ValueError, match="works on whole sequences"):
        weigh("ent_auto", DISPUTED, AGREED)
