"""The headline: what the numbers say, in whole percent."""

from dataclasses import replace

import pytest

from errornorm.demo.headline import aside, collapsed, headline, whole
from errornorm.demo.parts import Row

LIKELIHOOD = Row("MLE", "mle", 0.912, 0.0, 52.31, 8.12, 0.031, 1.0, 27.64)
OTHER = Row("TaiLr", "tailr(1e-05)", 0.921, 0.068, 52.6, 11.2, 0.018, 0.91, 22.3)
TRUNCATED = Row("ENT", "ent_fraction(0.1, start=200)", 0.968, 0.972, 55.1, 56.44, 0.0, 0.002, 24.6)
ROWS = [LIKELIHOOD, OTHER, TRUNCATED]


def test_the_headline_tells_a_collapse():
    nbsp = "\N{NO-BREAK SPACE}"
    assert headline(ROWS) == (
        f"With beam search, likelihood copies 100{nbsp}% of the sentences and translates 0{nbsp}%; "
        f"error norm truncation translates 97{nbsp}%."
    )
    assert collapsed(ROWS)
    assert f"it translates 91{nbsp}%" in aside(ROWS)


def test_the_headline_without_a_judge_goes_by_copies_and_bleu():
    text = headline([replace(row, correct_greedy=None, correct_beam=None) for row in ROWS])
    assert "BLEU 8.1; error norm truncation copies under 1" in text
    assert text.endswith("reaches BLEU 56.4.")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([LIKELIHOOD, OTHER], "is between 0 % (MLE) and 7 % (TaiLr)."),
        ([LIKELIHOOD], "is 0 % with MLE."),
        ([replace(LIKELIHOOD, correct_beam=0.98), TRUNCATED], "is between 97 % (ENT) and 98 % (MLE)."),
        ([replace(LIKELIHOOD, correct_beam=0.972), TRUNCATED], "is 97 % with every method."),
        ([replace(LIKELIHOOD, copies_beam=0.0), TRUNCATED], "is between 0 % (MLE) and 97 % (ENT)."),
    ],
)
def test_the_headline_is_neutral_where_the_numbers_are_not_so(rows, text):
    assert (
        headline(rows).replace("\N{NO-BREAK SPACE}", " ") == f"With beam search, the share of right translations {text}"
    )
    assert aside(rows) == ""
    assert not collapsed(rows)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.004, "under 1 %"),
        (0.01, "1 %"),
        (0.966, "97 %"),
        (0.99, "99 %"),
        (0.996, "over 99 %"),
        (1, "100 %"),
    ],
)
def test_nearly_all_is_not_all(share, text):
    assert whole(share).replace("\N{NO-BREAK SPACE}", " ") == text
