"""Every example in its turn, within the budget; ranks and micro-batches only cut the same batches into pieces."""

import math
from collections import Counter
from itertools import islice

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import errornorm
from errornorm.training.batches import NOTHING, Examples, Pairs, Plan, Rows
from errornorm.training.store import Ragged, Writer
from tests import tiny

SETTINGS = st.tuples(
    st.lists(st.integers(1, 40), min_size=1, max_size=80),  # lengths
    st.integers(16, 120),  # tokens
    st.integers(0, 3),  # seed
)


def examples(lengths, groups=None, temperature=1.0):
    lengths = numpy.asarray(lengths)
    return Examples(lengths, numpy.zeros(len(lengths), int) if groups is None else groups, temperature)


def plan(lengths, tokens=64, steps=10, seed=0, **options):
    return Plan(examples(lengths), tokens=tokens, steps=steps, seed=seed, **options)


def lengths_of(num, seed=0):
    return numpy.random.default_rng(seed).integers(1, 40, num)


@settings(max_examples=60, deadline=None)
@given(asked=SETTINGS)
def test_an_epoch_has_every_example_once_within_the_budget(asked):
    lengths, tokens, seed = asked
    lengths = numpy.array(lengths)
    batches = plan(lengths, tokens, seed=seed).batches()
    for _ in range(2):
        epoch = []
        while len(epoch) < len(lengths):
            batch = next(batches)
            assert len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens
            epoch += batch.tolist()
        assert sorted(epoch) == list(range(len(lengths)))


def test_batches_are_full_and_of_about_equal_length():
    lengths = lengths_of(4000)
    batches = list(islice(plan(lengths, 400).batches(), plan(lengths, 400).steps_per_epoch()))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert lengths.sum() / padded > 0.9
    assert padded / (400 * len(batches)) > 0.85


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("micro", [1, 2])
def test_the_pieces_of_all_ranks_are_the_batch_of_one(world, micro):
    lengths = lengths_of(50)
    pieces = world * micro
    ranks = [list(plan(lengths, steps=30, pieces=pieces, rank=rank, world=world)) for rank in range(world)]
    assert {len(pieces) for pieces in ranks} == {30 * micro}
    for step, batch in enumerate(plan(lengths, steps=30)):
        pieces = [piece for rank in ranks for piece in rank[step * micro : (step + 1) * micro]]
        found = [i for piece in pieces for i in piece if i != NOTHING]
        assert sorted(found) == sorted(batch)
        assert all(piece == [NOTHING] or NOTHING not in piece for piece in pieces)
        sizes = [len([i for i in piece if i != NOTHING]) for piece in pieces]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("options", [{}, {"pieces": 3}, {"pieces": 4, "rank": 1, "world": 2}, {"steps": 1}])
def test_the_length_is_the_number_of_batches(options):
    one = plan([5] * 7, **options)
    assert len(list(one)) == len(one)


def test_the_seed_decides_and_epochs_differ():
    lengths = lengths_of(200)
    first = plan(lengths)
    assert list(first) == list(first) == list(plan(lengths))
    assert list(plan(lengths, seed=1)) != list(first)
    per_epoch = first.steps_per_epoch()
    epochs = list(plan(lengths, steps=2 * per_epoch))
    assert epochs[:per_epoch] != epochs[per_epoch:]


def test_the_steps_of_the_first_epoch():
    lengths = lengths_of(200)
    batches, seen = plan(lengths).batches(), 0
    for _ in range(plan(lengths).steps_per_epoch()):
        seen += len(next(batches))
    assert seen == 200


def test_a_longer_run_begins_as_a_shorter_one():
    lengths = lengths_of(30)
    assert list(plan(lengths, steps=40))[:15] == list(plan(lengths, steps=15))


@pytest.mark.parametrize("lengths", [[1000], [1000, 2, 3], [1000] * 3])
def test_an_example_longer_than_the_budget_is_a_batch_of_its_own(lengths):
    for batch in plan(lengths):
        assert len(batch) == 1 or max(lengths[i] for i in batch) < 1000


def test_nothing_to_learn_from_is_no_endless_loop():
    with pytest.raises(AssertionError):
        plan([])


@pytest.mark.parametrize("temperature", [1.0, 5.0, 100.0])
def test_shares_of_corpora(temperature):
    """Proportional to (n_i / N) ** (1 / T), as measured over what is drawn."""
    sizes = [8000, 1500, 400, 100]
    groups = numpy.repeat(numpy.arange(4), sizes)
    drawn = examples(numpy.ones(sum(sizes)), groups, temperature).epoch(numpy.random.default_rng(0))
    shares = (numpy.array(sizes) / sum(sizes)) ** (1 / temperature)
    assert numpy.bincount(groups[drawn]) / len(drawn) == pytest.approx(shares / shares.sum(), abs=1e-3)
    assert abs(len(drawn) - sum(sizes)) <= 2
    seen = Counter(drawn.tolist())
    for group in range(4):  # each as often as its neighbours, or once more
        times = [seen[i] for i in numpy.flatnonzero(groups == group)]
        assert max(times) - min(times) <= 1


def test_a_corpus_without_examples():
    """A text corpus may be so short that no row begins in it."""
    groups = numpy.array([0] * 8 + [2] * 4)
    drawn = examples(numpy.ones(12), groups, 100.0).epoch(numpy.random.default_rng(0))
    assert numpy.bincount(groups[drawn]).tolist() == [6, 0, 6]


def ragged(path, rows):
    with Writer(path) as writer:
        for row in rows:
            writer.append(row)
    return Ragged(path)


def test_pairs_are_padded_on_the_right(tmp_path):
    sources, targets = [[5, 6, 7], [8], [4, 4]], [[1], [2, 3], [9, 9, 9, 9]]
    pairs = Pairs(ragged(tmp_path / "s", sources), ragged(tmp_path / "t", targets), pad=0)
    assert len(pairs) == 3
    batch = pairs.collate([pairs[0], pairs[1], pairs[2]])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0], [4, 4, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert batch["labels"].tolist() == [[1, -100, -100, -100], [2, 3, -100, -100], [9, 9, 9, 9]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_a_padding_token_in_a_text_is_not_masked(tmp_path):
    pairs = Pairs(ragged(tmp_path / "s", [[0, 5, 0]]), ragged(tmp_path / "t", [[0, 0]]), pad=0)
    batch = pairs.collate([pairs[0]])
    assert batch["attention_mask"].tolist() == [[1, 1, 1]]
    assert batch["labels"].tolist() == [[0, 0]]


@settings(max_examples=40, deadline=None)
@given(documents=st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1), length=st.integers(2, 12))
def test_rows_are_the_text_without_its_tail(tmp_path_factory, documents, length):
    text = ragged(tmp_path_factory.mktemp("rows") / "text", documents)
    rows = Rows(text, length)
    flat = [token for document in documents for token in document]
    found = [token for i in range(len(rows)) for token in rows[i]["input_ids"].tolist()]
    assert len(rows) == len(flat) // length
    assert found == flat[: len(found)]
    assert len(flat) - len(found) < length
    if len(rows):
        batch = rows.collate([rows[i] for i in range(len(rows))])
        assert batch["input_ids"].tolist() == batch["labels"].tolist()
        assert batch["input_ids"].shape == (len(rows), length)
        assert batch["input_ids"].dtype == torch.int64


def dataset(name, folder):
    """Of three examples, for a tiny model."""
    rows = [[5, 6, 7, 8], [9, 10, 11, 1], [12, 13, 14, 15]]
    if name in tiny.CAUSAL:
        return Rows(ragged(folder / "text", rows), 4)
    return Pairs(ragged(folder / "source", rows), ragged(folder / "target", rows), 0)


@pytest.mark.parametrize("name", ["marian", "gpt2"])
@pytest.mark.parametrize("method", ["mle", "ent_fraction(0.5)", "loss_truncation(0.5)"])
def test_an_empty_piece_teaches_nothing(tmp_path, name, method):
    """Neither a gradient nor a NaN; the next piece is learned from as if it had not been."""
    data = dataset(name, tmp_path)
    nothing = data.collate([data[NOTHING]])
    assert set(nothing["labels"].unique().tolist()) == {-100}
    model = tiny.model(name).train()
    with errornorm.attach(model, errornorm.objective(method)):
        loss = model(**nothing).loss
        loss.backward()
        assert float(loss.detach()) == 0
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(not gradient.any() for gradient in gradients)
        loss = model(**data.collate([data[0], data[1]])).loss
        assert 0 < float(loss.detach()) < math.inf
        model.zero_grad()
        loss.backward()
        assert any(p.grad is not None and p.grad.any() for p in model.parameters())


def test_through_a_loader(tmp_path):
    """As the trainer reads them: also the pieces without examples."""
    data = dataset("marian", tmp_path)
    one = Plan(examples([4, 4, 4]), tokens=16, steps=5, seed=0, pieces=4)
    batches = list(torch.utils.data.DataLoader(data, batch_sampler=one, collate_fn=data.collate))
    assert len(batches) == 20
    empty = [batch for batch in batches if (batch["labels"] == -100).all()]
    assert len(empty) == 5  # three examples for four pieces
    assert all(batch["input_ids"].tolist() == [[0]] for batch in empty)
