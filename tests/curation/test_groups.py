import pytest

from errornorm.curation.groups import Grouping, check_field, length_group
from errornorm.data.values import MISSING, value_at
from tests.score_tables import write

RECORDS = [
    {"site": "a.org", "meta": {"year": 2011, "ok": True}, "x.y": 1},
    {"site": "b.org", "meta": {"year": 2012, "ok": False}},
    {"site": None, "meta": "none"},
    {"site": ""},
    {},
]


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "scores", [{"text": "un chien court", "fields": fields} for fields in RECORDS])


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        ("site", ["a.org", "b.org", "(none)", "(none)", "(none)"]),
        ("meta.year", ["2011", "2012", "(none)", "(none)", "(none)"]),
        ("meta.ok", ["true", "false", "(none)", "(none)", "(none)"]),
        ("x.y", ["1", "(none)", "(none)", "(none)", "(none)"]),
        ("meta", ['{"ok": true, "year": 2011}', '{"ok": false, "year": 2012}', "none", "(none)", "(none)"]),
        ("length", ["up to 5 words"] * 5),
        (None, ["all"] * 5),
    ],
)
def test_keys(scores, field, keys):
    grouping = Grouping(field)
    rows = next(iter(scores.batches(["record", *grouping.columns])))
    assert grouping.keys(rows) == keys


def test_a_field_that_nobody_has(scores):
    check_field(scores, "meta.ok")
    with pytest.raises(ValueError, match=r"no record has the field 'sight'.*; there are site, meta.year, meta.ok, x.y"):
        check_field(scores, "sight")
    with pytest.raises(ValueError, match=r"did you mean meta.year\?"):
        check_field(scores, "meta.yeer")


def test_no_fields_at_all(tmp_path):
    with pytest.raises(ValueError, match="the records have no other fields than the text"):
        check_field(write(tmp_path / "scores", [{"text": "a"}]), "site")


def test_values():
    assert value_at({"a": {"b": {"c": 1}}}, "a.b.c") == 1
    assert value_at({"a": {"b": 1}, "a.b": 2}, "a.b") == 2
    assert value_at({"a": [1]}, "a.b") is MISSING
    assert value_at({"a": None}, "a") is None


def test_lengths():
    assert [length_group(n) for n in (0, 1, 5, 6, 160, 161)] == [
        "up to 5 words", "up to 5 words", "up to 5 words", "6-10 words", "81-160 words", "over 160 words",
    ]  # fmt: skip
