"""Outputs in order, the same one by one as in batches, within what the model can read."""

import pytest
import torch

from errornorm.evaluation import decode
from errornorm.evaluation.encode import encode
from tests import tiny

TEXTS = [text for pair in tiny.PAIRS[::5] for text in pair]
NAMES = tuple(tiny.SHAPES)


def tokenizer(name):
    return tiny.tokenizer("causal" if name in tiny.CAUSAL else "seq2seq")


def outputs(model, name, texts=TEXTS, **options):
    return decode.generate(model, tokenizer(name), texts, **{"beams": 1, "max_new_tokens": 8} | options)


def alone(model, name, text, beams=1, new=8):
    """By the library, one text, no padding."""
    ids = tokenizer(name)(text, return_tensors="pt")["input_ids"]
    found = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False,
                           early_stopping=beams > 1, max_new_tokens=new)  # fmt: skip
    written = found[0, ids.shape[1] :] if name in tiny.CAUSAL else found[0]
    return tokenizer(name).decode(written, skip_special_tokens=True).strip()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beams", [1, 3])
def test_as_the_library_does_one_by_one(name, beams):
    """Texts of different lengths in one batch: paddings, on the left for causal models, change nothing."""
    model = tiny.model(name)
    found = outputs(model, name, beams=beams)
    assert found == [alone(model, name, text, beams) for text in TEXTS]
    assert len(set(found)) > 4  # else an order would not show


@pytest.mark.parametrize("name", ["bart", "gpt2"])
def test_the_order_is_kept_over_batches(monkeypatch, name):
    model = tiny.model(name)
    whole = outputs(model, name)
    monkeypatch.setattr(decode, "TOKENS", 70)
    monkeypatch.setattr(decode, "SHORT", 1)
    told = []
    assert outputs(model, name, tell=told.append) == whole
    assert told == sorted(told)
    assert len(told) > 3
    assert told[-1] == len(TEXTS)
    assert outputs(model, name, TEXTS[::-1]) == whole[::-1]


def test_short_texts_do_not_make_endless_batches(monkeypatch):
    sizes = []
    monkeypatch.setattr(
        decode, "_search", lambda model, tokenizer, rows, *rest: sizes.append(len(rows)) or [""] * len(rows)
    )
    outputs(tiny.model("bart"), "bart", ["a"] * 500, beams=5)
    assert max(sizes) == decode.TOKENS // (5 * decode.SHORT)
    assert sum(sizes) == 500


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beams", [1, 2])
def test_nothing_to_read(name, beams):
    model = tiny.model(name)
    assert outputs(model, name, [], beams=beams) == []
    found = outputs(model, name, ["", TEXTS[0], "", " "], beams=beams)
    assert len(found) == 4
    assert found[0] == found[2]
    assert found[1] == outputs(model, name, [TEXTS[0]], beams=beams)[0]


def test_the_end_ends():
    model = tiny.model("bart")
    model.final_logits_bias[0, model.config.eos_token_id] = 1e4
    assert outputs(model, "bart") == [""] * len(TEXTS)
    model.final_logits_bias[0, model.config.eos_token_id] = -1e4
    assert all(outputs(model, "bart"))


@pytest.mark.parametrize("name", ["marian", "llama"])
def test_new_tokens_are_counted_without_the_input(name):
    model = tiny.model(name)
    for new in (1, 5):
        found = outputs(model, name, max_new_tokens=new)
        assert found == [alone(model, name, text, new=new) for text in TEXTS]


def test_a_long_source_is_cut_at_its_end():
    """As in training: the end token stays."""
    model, long = tiny.model("t5"), "a small dog runs " * 9
    (row,) = encode(tiny.tokenizer(), [long], cut=6)
    short = tiny.tokenizer().decode(row, skip_special_tokens=True)
    assert encode(tiny.tokenizer(), [short]) == [row]
    assert outputs(model, "t5", [long], max_length=6) == [alone(model, "t5", short)]
    assert outputs(model, "t5", [long]) == [alone(model, "t5", long)]
    assert outputs(model, "t5", [long], max_length=1000) == outputs(model, "t5", [long])


def test_a_long_prompt_is_cut_at_its_beginning():
    model, words = tiny.model("gpt2"), "a small dog runs today"
    assert outputs(model, "gpt2", [f"xxxxx xxxxx {words}"], max_length=len(tokenizer("gpt2")(words)["input_ids"])) == [
        alone(model, "gpt2", words)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_more_than_the_model_has_positions_for(name):
    """What is too much is cut; nothing breaks."""
    model = tiny.model(name, max_length=16)
    rooms = {"t5": None, "llama": 16, "gpt2": 16}
    assert decode.positions(model) == rooms.get(name, 24)
    assert len(outputs(model, name, ["a dog runs " * 40, "a dog"], max_new_tokens=100)) == 2


def test_the_lengths_of_inputs_and_outputs():
    encoder_decoder, causal, relative = (tiny.model(name, max_length=16) for name in ("bart", "gpt2", "t5"))
    assert decode._lengths(encoder_decoder, None, 100) == (24, 24)
    assert decode._lengths(encoder_decoder, 7, 5) == (7, 5)
    assert decode._lengths(causal, None, 100) == (8, 8)
    assert decode._lengths(causal, None, 4) == (12, 4)
    assert decode._lengths(causal, 7, 4) == (7, 4)
    assert decode._lengths(relative, None, 100) == (None, 100)
    relative.config.max_position_embeddings = -1
    assert decode.positions(relative) is None


def test_a_prompt_does_not_end():
    """Some tokenizers add the end to every text: nothing would come after it."""
    model = tiny.model("gpt2")
    found = decode.generate(model, tiny.tokenizer("seq2seq"), TEXTS, beams=1, max_new_tokens=8)
    assert found == outputs(model, "gpt2")


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_what_it_was(training):
    model = tiny.model("marian").train(training)
    first = outputs(model, "marian")
    assert model.training == training
    assert outputs(model, "marian") == first  # no dropout
    assert outputs(model.eval(), "marian") == first
