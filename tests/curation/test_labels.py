import math

import numpy
import pytest

from errornorm.curation.labels import Judge, LabelError, find_kind, kind_of
from tests.score_tables import write

WORDS = [(0, 2), (3, 8), (9, 14)]  # un chien court
PLACES = [(0, 2), (3, 6), (6, 8), (9, 14), (14, 14)]


def judged(value, kind=None, positive=None):
    return Judge("labels", kind or kind_of(value), positive)({"labels": value}, WORDS, PLACES)


def same(found, expected):
    numpy.testing.assert_array_equal(found, expected)


def test_words():
    found = judged([0, 1, 0])
    same(found.words, [0, 1, 0])
    same(found.tokens, [0, 1, 1, 0, math.nan])  # the end token belongs to no word
    assert (found.text, found.share) == (1, pytest.approx(1 / 3))


@pytest.mark.parametrize("value", [[False, True, False], [0.0, 1.0, 0.0]])
def test_other_ways_to_say_one(value):
    same(judged(value).words, [0, 1, 0])


def test_words_that_are_not_judged():
    found = judged([1, None, None])
    same(found.tokens, [1, math.nan, math.nan, math.nan, math.nan])
    assert (found.text, found.share) == (1, 1)
    assert math.isnan(judged([None, None, None], "words").text)


def test_named_labels():
    found = judged(["OK", "BAD", None], positive=["BAD"])
    same(found.words, [0, 1, math.nan])


def test_spans():
    found = judged([[4, 7]])
    same(found.words, [0, 1, 0])
    same(found.tokens, [0, 1, 1, 0, math.nan])
    same(judged([[6, 8]]).tokens, [0, 0, 1, 0, math.nan])  # a span may be a part of a word
    same(judged([], "spans").words, [0, 0, 0])
    same(judged([[2, 3]]).words, [0, 0, 0])  # the blank between two words


@pytest.mark.parametrize(("value", "text"), [(1, 1), (0, 0), (True, 1), (False, 0)])
def test_texts(value, text):
    found = judged(value)
    same(found.words, [text] * 3)
    same(found.tokens, [text] * 4 + [math.nan])
    assert (found.text, found.share) == (text, text)


def test_named_texts():
    assert judged("copied", positive=["copied", "other"]).text == 1
    assert judged("clean", positive=["copied", "other"]).text == 0
    assert judged(3, positive=["3"]).text == 1


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (None, "words", "no label"),
        ([0, 1], "words", "not as many labels as words (2 labels, 3 words)"),
        ([], "words", "not as many labels as words (0 labels, 3 words)"),
        ([0, 2, 1], "words", "not 0 or 1 ('2')"),
        ([0, math.nan, 1], "words", "not 0 or 1"),
        ("copied", "text", "not 0 or 1 ('copied')"),
        ({"a": 1}, "text", "not 0 or 1"),
        ([], "text", "not 0 or 1"),
        (1, "words", "another kind"),
        ([[1, 2]], "words", "another kind"),
        ([[2, 1]], "spans", "a span that is not [start, end] ([2, 1])"),
        ([[0, 1, 2]], "spans", "a span"),
        ([[0.5, 1]], "spans", "a span"),
        ([[0, 1], 3], "spans", "a span"),
        ([[-1, 1]], "spans", "a span"),
    ],
)
def test_unusable(value, kind, reason):
    with pytest.raises(LabelError) as error:
        judged(value, kind)
    assert reason in str(error.value)


def test_names_that_no_record_has():
    judge = Judge("label", "text", ["copyed"])
    judge({"label": "copied"}, WORDS, PLACES)
    with pytest.raises(ValueError, match=r"no label is 'copyed' \(did you mean copied\?\); there are copied"):
        judge.check()


def test_kind_is_that_of_the_first_one_that_says_it(tmp_path):
    rows = [{"text": "a b", "fields": {"labels": labels}} for labels in (None, [], [None, None], [[0, 1]])]
    assert find_kind(write(tmp_path / "a", rows), "labels") == "words"
    assert find_kind(write(tmp_path / "b", [*rows[:2], rows[3]]), "labels") == "spans"
    assert find_kind(write(tmp_path / "c", rows[:2]), "labels") == "spans"


def test_a_text_without_words():
    judge = Judge("labels", "words")
    found = judge({"labels": []}, [], [(0, 0)])
    assert len(found.words) == 0
    assert math.isnan(found.text)
    same(found.tokens, [math.nan])
