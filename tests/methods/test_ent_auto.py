import pytest
import torch

from errornorm import RobustLoss, ent_auto
from errornorm.openings import bound
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


def kept(steps=3, **counts):
    """The weights of one sequence of each kind, in a corpus with so many of each."""
    sequences = [KINDS[name] for name, count in counts.items() for _ in range(count)]
    rows = [row for sequence in sequences for row in sequence]
    weights = weigh("ent_auto", *rows, shape=(len(sequences), 6), steps=steps).weights
    assert torch.equal(weights.amin(1), weights.amax(1))  # a sequence goes as a whole
    places = torch.tensor([0, *counts.values()]).cumsum(0)[:-1]
    return dict(zip(counts, weights[places, 0].tolist(), strict=True))


def test_drops_what_is_certain_but_for_its_opening():
    found = kept(copy=20, translation=40, ambiguous=20, easy=2)
    assert found == {"copy": 0, "translation": 1, "ambiguous": 1, "easy": 1}


def test_easy_text_may_open_in_several_ways():
    """Where agreed openings lead to certain text as often, a disputed one says nothing."""
    assert kept(copy=20, easy=20, translation=20, ambiguous=20)["copy"] == 1


def test_a_few_are_not_enough():
    assert kept(steps=1, copy=2, translation=40, ambiguous=40)["copy"] == 1
    assert kept(steps=3, copy=2, translation=40, ambiguous=40)["copy"] == 1


def test_it_waits_until_it_knows_how_hard_tokens_are():
    """In the first step nothing is known, after the second one there is something to compare with."""
    assert [kept(steps, copy=20, translation=40, ambiguous=20)["copy"] for steps in (1, 2, 3)] == [1, 1, 0]


def test_while_nothing_is_certain_nothing_is_dropped():
    assert kept(translation=40, ambiguous=40) == {"translation": 1, "ambiguous": 1}


def test_one_token_alone_has_no_rest():
    rows = [DISPUTED] * 30 + [AGREED] * 30
    assert weigh("ent_auto", *rows, shape=(60, 1), steps=5).num_kept == 60


def test_noise_that_ends_is_forgotten():
    loss = RobustLoss(ent_auto())

    def step(*sequences):
        width = max(len(row) for sequence in sequences for row in sequence)
        logits = torch.tensor(
            [[[*row, *[0.0] * (width - len(row))] for row in sequence] for sequence in sequences], dtype=torch.float64
        ).log()
        terms = loss(logits=logits.requires_grad_(), targets=torch.zeros(len(sequences), 6, dtype=torch.long))
        loss.advance()
        return terms.num_kept == terms.num_tokens

    for _ in range(5):
        step(*[COPY] * 20, *[TRANSLATION] * 40, *[AMBIGUOUS] * 20)
    clean = [COPY, *[EASY] * 20, *[TRANSLATION] * 20, *[AMBIGUOUS] * 20]
    found = [step(*clean) for _ in range(100)]
    assert not found[0]
    assert found[-1]


@pytest.mark.parametrize(
    ("agreed", "disputed", "edge"),
    [
        ([0] * 20, [0] * 20, 0.0),
        ([0] * 20, [100] * 20, 0.0),  # nothing to compare with
        ([100] * 20, [0] * 20, 0.0),
        ([10] * 20, [60] * 4 + [10] * 16, 0.25),  # a bin more: it is judged with the two before it
        ([10] * 20, [10] * 16 + [60] * 4, 0.0),  # hard texts with disputed openings are no copies
        ([1] * 20, [3] * 4 + [1] * 16, 0.0),  # chance
    ],
)
def test_the_control_group(agreed, disputed, edge):
    assert bound(agreed, disputed) == edge


def test_openings_of_ragged_and_packed_rows():
    layout = Layout(row=torch.tensor([0, 0, 0, 1, 1, 3]), ids=torch.tensor([0, 0, 1, 0, 0, 2]), num_tokens=6)
    assert layout.openings.tolist() == [0, 2, 3, 5]


def test_a_flat_batch_does_not_say_where_a_sequence_opens():
    with pytest.raises(ValueError, match="works on whole sequences"):
        weigh("ent_auto", DISPUTED, AGREED)
