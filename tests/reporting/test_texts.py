import json

import pytest

from errornorm.reporting.texts import shown, to_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "‹ESC›[31mred‹ESC›[0m"),
        ("a\x00b\x07\x7f\x9b", "a‹NUL›b‹BEL›‹DEL›‹9B›"),
        ("\u202egnp.exe", "‹RLO›gnp.exe"),
        ("a\u200bb\u00ad\ufeff", "a‹ZWSP›b‹SHY›‹BOM›"),
        ("two\nlines\ttab\r", "two↵\nlines⇥tab‹CR›"),
        ("\ud800 half", "\ufffd half"),
        ("e\u0301 👩\u200d🚀 \u200cفارسی", "e\u0301 👩\u200d🚀 \u200cفارسی"),  # joiners have work to do
        ("z" + "\u0301" * 50, "z" + "\u0301" * 4),
        ("\U000e0041x", "‹TAG›x"),
        ("\u2028\u2029", "‹LS›‹PS›"),
    ],
)
def test_hidden_characters_are_seen_and_others_stay(text, expected):
    assert shown(text, 100) == expected
    assert shown(text, 100).encode("utf-8")


def test_what_is_long_is_cut():
    assert shown("x" * 2**20, 10) == "x" * 9 + "…"
    assert shown("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize("text", ["</script>", "<!--", "-->", "]]>", "&lt;", "<script", "\u2028", "{{ 7*7 }}", '"'])
def test_no_text_ends_the_block_of_data(text):
    packed = to_json({"key": [text, text.upper()]})
    assert json.loads(packed) == {"key": [text, text.upper()]}
    assert not {"<", ">", "&"} & set(packed)


def test_only_numbers_that_json_has():
    with pytest.raises(ValueError, match="Out of range"):
        to_json(float("nan"))
