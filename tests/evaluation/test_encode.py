"""Every text ends with the end token, once; rows are padded where they should be."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from errornorm.evaluation.encode import by_length, encode, padded, pairs
from tests.tiny import tokenizer

TEXTS = ["a small dog", "", "un chien " * 9, "\u2028"]


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])  # the first adds an end by itself, the second does not
@pytest.mark.parametrize("target", [False, True])
def test_each_text_ends_once(kind, target):
    rows = encode(tokenizer(kind), TEXTS, target=target)
    end = tokenizer(kind).eos_token_id
    assert [row.count(end) for row in rows] == [1] * len(TEXTS)
    assert [row[-1] for row in rows] == [end] * len(TEXTS)
    assert [tokenizer(kind).decode(row[:-1]).removeprefix(" ") for row in rows] == TEXTS
    assert encode(tokenizer("seq2seq"), TEXTS) == encode(tokenizer("causal"), TEXTS)


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
@pytest.mark.parametrize("cut", [2, 3, 7, 1000])
def test_cut_texts_still_end(kind, cut):
    for row, whole in zip(encode(tokenizer(kind), TEXTS, cut=cut), encode(tokenizer(kind), TEXTS), strict=True):
        assert row == (whole if len(whole) <= cut else [*whole[: cut - 1], whole[-1]])


def test_a_cut_is_not_remembered():
    whole = encode(tokenizer(), TEXTS)
    encode(tokenizer(), TEXTS, cut=2)
    assert encode(tokenizer(), TEXTS) == whole


def test_no_texts():
    assert encode(tokenizer(), []) == []
    assert list(by_length([], 10)) == []


def test_padding():
    tokens, mask = padded([[1, 2], [3], []], 9)
    assert tokens.tolist() == [[1, 2], [3, 9], [9, 9]]
    assert mask.tolist() == [[1, 1], [1, 0], [0, 0]]
    tokens, mask = padded([[1, 2], [3]], 9, left=True)
    assert tokens.tolist() == [[1, 2], [9, 3]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    assert tokens.dtype == mask.dtype == torch.int64


def test_pairs_have_ignored_labels():
    batch = pairs([[1], [2, 3]], [[4, 5], [6]], 0)
    assert {name: tensor.tolist() for name, tensor in batch.items()} == {
        "input_ids": [[1, 0], [2, 3]],
        "attention_mask": [[1, 0], [1, 1]],
        "labels": [[4, 5], [6, -100]],
    }


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(st.integers(0, 30), max_size=40), budget=st.integers(1, 100))
def test_batches_by_length(sizes, budget):
    batches = list(by_length(sizes, budget))
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[i] for i in batch) <= budget
    firsts = [sizes[batch[0]] for batch in batches]
    assert firsts == sorted(firsts, reverse=True)


def test_a_tokenizer_that_begins_with_the_end_token():
    found = copy.deepcopy(tokenizer("causal"))
    end = found.eos_token
    found.bos_token = end
    found.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{end} $A", special_tokens=[(end, found.eos_token_id)]
    )
    (row,) = encode(found, ["a small dog"])
    assert (row[0], row[-1], row.count(found.eos_token_id)) == (found.eos_token_id, found.eos_token_id, 2)
