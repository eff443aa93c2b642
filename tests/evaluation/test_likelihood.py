"""The likelihood is that of the labels, computed by hand in float64, however the texts are batched."""

import math

import pytest
import torch

import errornorm
from errornorm.evaluation.encode import encode, pairs
from errornorm.evaluation.likelihood import Likelihood, evaluating, likelihood
from tests import tiny

SEQ2SEQ = ("t5", "bart", "marian")
PAIRS = tiny.PAIRS[:12:2]


def seq2seq_batch(texts=PAIRS, pad=0):
    sources, targets = (encode(tiny.tokenizer(), [pair[i] for pair in texts]) for i in (0, 1))
    return pairs(sources, targets, pad)


def causal_batch(rows=3, length=10):
    flat = [token for row in encode(tiny.tokenizer("causal"), [pair[0] for pair in PAIRS]) for token in row]
    tokens = torch.tensor(flat[: rows * length]).view(rows, length)
    return {"input_ids": tokens, "labels": tokens}


def by_hand(model, inputs, labels):
    """One sequence, without padding, in float64."""
    model = model.double()
    out = model(**inputs).logits[0].log_softmax(-1)
    total = -sum(float(out[i, label]) for i, label in enumerate(labels) if label != -100)
    model.float()
    return total


@pytest.mark.parametrize("name", SEQ2SEQ)
@torch.no_grad()
def test_a_padded_batch_of_pairs(name):
    """Lengths of both sides differ, so that a padding that counts or is seen would show."""
    model = tiny.model(name)
    found = likelihood(model, [seq2seq_batch()])
    total, tokens = 0.0, 0
    for source, target in PAIRS:
        row = seq2seq_batch([(source, target)])
        assert row["attention_mask"].all()
        start = model.config.decoder_start_token_id
        decoder = torch.cat([torch.tensor([[start]]), row["labels"][:, :-1]], 1)
        total += by_hand(
            model, {"input_ids": row["input_ids"], "decoder_input_ids": decoder}, row["labels"][0].tolist()
        )
        tokens += row["labels"].numel()
    assert found.tokens == tokens
    assert found.total == pytest.approx(total, rel=2e-6)
    assert found.nll == found.total / tokens
    assert found.perplexity == pytest.approx(math.exp(total / tokens), rel=1e-4)


@pytest.mark.parametrize("name", tiny.CAUSAL)
@torch.no_grad()
def test_rows_of_text(name):
    model = tiny.model(name)
    batch = causal_batch()
    total = sum(by_hand(model, {"input_ids": row[None, :-1]}, row[1:].tolist()) for row in batch["input_ids"])
    found = likelihood(model, [batch])
    assert found.tokens == 3 * 9  # the first token of a row is not predicted
    assert found.total == pytest.approx(total, rel=2e-6)


@torch.no_grad()
def test_ignored_labels_do_not_count():
    model, batch = tiny.model("gpt2"), causal_batch(1)
    labels = batch["labels"].clone()
    labels[0, :7] = -100
    found = likelihood(model, [batch | {"labels": labels}])
    parts = [by_hand(model, {"input_ids": batch["input_ids"][:, :-1]}, labels[0, 1:].tolist())]
    assert (found.tokens, found.total) == (3, pytest.approx(sum(parts), rel=2e-6))


def test_it_adds_up_over_batches():
    model = tiny.model("marian")
    whole = likelihood(model, [seq2seq_batch()])
    one_by_one = likelihood(model, (seq2seq_batch([pair]) for pair in PAIRS))
    halves = likelihood(model, [seq2seq_batch(PAIRS[:2])]) + likelihood(model, [seq2seq_batch(PAIRS[2:])])
    for found in (one_by_one, halves):
        assert found.tokens == whole.tokens
        assert found.total == pytest.approx(whole.total, rel=2e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_what_it_was(training):
    model = tiny.model("marian").train(training)
    model.model.encoder.dropout = 0.5
    first = likelihood(model, [seq2seq_batch()])
    assert model.training == training
    assert likelihood(model, [seq2seq_batch()]) == first  # no dropout


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_what_it_was_even_after_an_error(training):
    model = tiny.model("marian").train(training)
    seen = []

    def stopped():
        with evaluating(model):
            seen.append(model.training)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    assert seen == [False]
    assert all(module.training == training for module in model.modules())


@pytest.mark.parametrize("name", ["marian", "gpt2"])
def test_an_attached_objective_changes_nothing(name):
    """The perplexity of a run is plain, whatever it trains with; and it teaches nothing."""
    model = tiny.model(name).train()
    batch = seq2seq_batch() if name == "marian" else causal_batch()
    plain = likelihood(model, [batch])
    with errornorm.attach(model, errornorm.ent_fraction(0.5)):
        assert likelihood(model, [batch]) == plain
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_has_no_likelihood():
    assert math.isnan(Likelihood().nll)
    assert math.isnan(Likelihood().perplexity)
    assert Likelihood() + Likelihood(3.0, 2) == Likelihood(3.0, 2)
    assert likelihood(tiny.model("gpt2"), []) == Likelihood()


def test_a_hopeless_model_has_a_finite_perplexity():
    assert math.isfinite(Likelihood(1e6, 10).perplexity)
    assert Likelihood(math.log(5) * 4, 4).perplexity == pytest.approx(5)
    assert math.isnan(Likelihood(math.nan, 4).perplexity)
