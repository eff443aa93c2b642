"""YAML is read without surprises, or refused at the place where it is broken."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errornorm.training import yamltree, yamlwrite
from tests.configurations import refused

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["yes", "null", "~", "1e3", ".5e3", "0x1F", "1_0", "- a", "a: b", "# a", " a ", "a\nb\n", "'", '"', "<<", "=", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=10,
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_any_values_survive(values):
    assert yamltree.parse(yamlwrite.write(values), "a").value == values


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"", "1:1: must have lines of key: value, but is empty; begin with task: translation"),
        (b"# nothing\n", "1:1: must have lines of key: value, but is empty; begin with task: translation"),
        (b"- a\n", "1:1: must have lines of key: value, but is a list; begin with task: translation"),
        (b"task:translation", "1:1: must have lines of key: value, but is a text; begin with task: translation"),
        (b"task: a\n# \xff", "2:3: not UTF-8 (byte 0xff); save it as UTF-8"),
        (b"task: \xe9", "1:7: task: not UTF-8 (byte 0xe9); save it as UTF-8"),
        (b"task: \0", "1:7: task: a character that YAML does not allow (0x00); remove it"),
        (b"%YAML 1.1\n---\na: 1", "1:1: %YAML 1.1: this is read as YAML 1.2; remove the line"),
        (b"a: 1\n---\nb: 1", "2:1: a second document; leave only one"),
        (b"a:\n\tb: 1", "2:1: a.b: a tab; indent by spaces"),
        (b"a: 'b\nc: d", "1:4: a: this quote is not closed; add the closing one at the end of the text"),
        (b"a: 'b\nc: 'd'", "1:4: a: this quote is not closed; add the closing one at the end of the text"),
        (b"a: [b\nc: d", "1:4: a: this bracket is not closed; add a ], or a comma between items"),
        (b"a: b]\nc: ]", "2:4: c: a closing bracket that nothing opened; remove it, or put the text in quotes"),
        (b"a:\n  b:1\n  c: 2", "2:3: a.b: not of the form key: value, with a space after the colon"),
        (b"a: 1\nb 2", "2:1: b: not of the form key: value, with a space after the colon"),
        (b"a:\n    b: 1\n  c: 2", "3:3: a.c: the indentation does not fit the lines above"),
        (b"a:\n  b: 1\n    c: 2", "3:6: a.c: a colon too many; check the indentation, and put a text with a colon in "
         "quotes"),
        (b"a: - b", "1:4: a: a dash too many; an item of a list begins on a line of its own"),
        (b"!include base.yaml", "1:1: the tag !include is not allowed; remove it"),
        (b"a: 1\n" + b"x" * 2000 + b": 1",
         f"2:1: {'x' * 57}...: not of the form key: value, with a space after the colon"),
        (b"a: *b", "1:4: a: there is no anchor &b above; put a text with * in quotes"),
        (b"a: @b", "1:4: a: a text cannot begin with @; put it in quotes"),
        (b'a: "\\d"', "1:6: a: a backslash means something else in double quotes; use single ones"),
        (b'a: 1\nb: "\\UFFFFFFFF"', "2:5: b: there is no character \\UFFFFFFFF; remove it"),
        (b'a: "\\\\\\U00110000"', "1:7: a: there is no character \\U00110000; remove it"),
        (b"a: 'b' c", "1:8: a: text that does not belong here; check the quotes and the indentation"),
        (b"a: " + b"[" * 5000, "1:43: a: nested too deeply"),
        (b"a: &", "1:5: a: a name is missing behind * or &; put a text with them in quotes"),
    ],
)  # fmt: skip
def test_what_is_no_yaml(tmp_path, text, want):
    assert refused(tmp_path, text) == [f"run.yaml:{want}"]


def bomb(inner, layer):
    lines = [f"a: &a {inner}"]
    lines += [f"{b}: &{b} {layer(a)}" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb("[x, x, x, x, x, x, x, x, x]", lambda a: f"[{', '.join([f'*{a}'] * 9)}]"),
        bomb("{x: y}", lambda a: "{" + ", ".join(f"k{i}: *{a}" for i in range(9)) + "}"),
        bomb("{x: y}", lambda a: f"{{<<: [{', '.join([f'*{a}'] * 9)}]}}"),
        "a: [" + "1, " * 20_000 + "]",
        "a: b\n" * 60_000,
    ],
    ids=["lists", "mappings", "merges", "items", "size"],
)
def test_bombs_do_not_go_off(tmp_path, text):
    start = time.perf_counter()
    (line,) = refused(tmp_path, text)
    assert "this is no configuration" in line
    assert time.perf_counter() - start < 5
