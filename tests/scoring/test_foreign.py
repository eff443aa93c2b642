"""Tables that others made, or damaged: each verb says so in a line that names the file."""

import json

import pytest

from errornorm.cli.app import main
from errornorm.data.lines import DataError
from errornorm.scoring.folder import read_begun
from errornorm.scoring.objects import read_object
from errornorm.scoring.table import META
from tests.score_tables import random_rows, write

DEEP = "[" * 100_000
NESTED = '{"a": ' + "[" * 900 + "]" * 900 + "}"  # Python can read it, but not work on it
GOOD = '{"labels": [0, 1], "site": {"name": [[1]]}}'


def verbs(folder, output):
    """What reads a table, and all of its columns."""
    return {
        "summary": ["summary", str(folder), "--group-by", "noise"],
        "report": ["report", str(folder), "-o", str(output / "report.html")],
        "detect": ["detect", str(folder), "--labels", "labels", "--bootstrap", "0"],
        "prune": ["prune", str(folder), "--fraction", "0.5", "--unit", "source", "--group-by", "noise"],
    }


def refused(capsys, folder, output, part, names=("summary", "report", "detect", "prune")):
    """Each of the verbs ends with the code for data and one line about this file."""
    for name in names:
        capsys.readouterr()
        code, said = main(verbs(folder, output)[name]), capsys.readouterr().err
        assert (name, code) == (name, 3), said
        assert str(folder / part) in said, said


def test_objects():
    assert read_object(GOOD.encode(), "x") == json.loads(GOOD)
    for text in (DEEP, NESTED, "{", "[1]", "null", b"\xff"):
        with pytest.raises(DataError, match=r"^some/file: damaged \(.*\); score the corpus again$"):
            read_object(text, "some/file")


@pytest.mark.parametrize("text", [DEEP, NESTED, "{", "[1]", "null"], ids=["deep", "nested", "{", "[1]", "null"])
@pytest.mark.parametrize("place", ["meta", "fields"])
def test_json_that_is_no_object(tmp_path, capsys, text, place):
    rows = list(random_rows(20))
    if place == "fields":
        rows[0]["fields"] = text
    scores = write(tmp_path / "scores", rows)
    if place == "meta":
        (scores.folder / META).write_text(text)
    refused(capsys, scores.folder, tmp_path, META if place == "meta" else scores.parts[0].name)


def test_what_a_table_was_begun_with(tmp_path):
    (tmp_path / "begun.json").write_text(DEEP)
    with pytest.raises(DataError, match=r"begun\.json: damaged .*remove the folder"):
        read_begun(tmp_path / "begun.json")
