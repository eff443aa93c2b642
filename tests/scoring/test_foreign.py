"""Tables that others made, or damaged: each verb says so in a line that names the file."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errornorm.cli.app import main
from errornorm.data.lines import DataError
from errornorm.scoring.folder import read_begun
from errornorm.scoring.objects import read_object
from errornorm.scoring.table import META, SCHEMA, Scores, write_part
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


@pytest.mark.parametrize("value", ["text", 1, True])
@pytest.mark.parametrize("name", ["model", "corpus", "settings", "versions", "command"])
def test_meta_data_of_another_type(tmp_path, name, value):
    with pytest.raises(DataError, match=rf"meta\.json: damaged \('{name}' is"):
        write(tmp_path, random_rows(3), **{name: value})


@pytest.mark.parametrize("value", [None, True, -1, 3.0, "3"])
@pytest.mark.parametrize("name", ["records", "used", "quarantined", "tokens", "parts"])
def test_counts_that_are_none(tmp_path, name, value):
    with pytest.raises(DataError, match=rf"meta\.json: damaged \('{name}' is {value!r}, and not a count\); score the"):
        write(tmp_path, random_rows(3), **{name: value})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("parts", [10**12, 10**400])
def test_more_parts_than_a_list_can_hold(tmp_path, parts):
    with pytest.raises(DataError, match=r"part-00001\.parquet is missing; score the corpus again"):
        write(tmp_path, random_rows(3), parts=parts)


@pytest.mark.parametrize("cutoff", ["1", None, float("nan"), 10**400])
def test_a_cutoff_that_is_no_number(tmp_path, cutoff):
    with pytest.raises(DataError, match=r"meta\.json: damaged \(the cutoff is"):
        write(tmp_path, random_rows(3), settings={"cutoff": cutoff})


def test_rows_that_are_missing(tmp_path, capsys):
    folder = write(tmp_path / "scores", random_rows(30), part_rows=10).folder
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps(meta | {"parts": 2}))
    with pytest.raises(DataError, match=r"/scores: 20 rows in its parts, but 30 in meta\.json; score the corpus again"):
        Scores.open(folder)
    refused(capsys, folder, tmp_path, "")


def test_rows_that_are_there_twice(tmp_path, capsys):
    first, second, _ = write(tmp_path / "scores", random_rows(30), part_rows=10).parts
    shutil.copy(first, second)
    with pytest.raises(DataError, match=r"part-00001\.parquet: record 0 comes after record 9; score the corpus again"):
        Scores.open(second.parent)
    refused(capsys, second.parent, tmp_path, second.name)


@pytest.mark.parametrize("statistics", [True, False])
def test_parts_that_say_less_or_hold_no_rows(tmp_path, statistics):
    scores = write(tmp_path / "scores", random_rows(30), part_rows=10)
    for part, rows in zip(scores.parts, ((0, 10), (10, 0), (10, 20)), strict=True):
        pq.write_table(scores.table().slice(*rows), tmp_path / part.name, write_statistics=statistics)
    for part in scores.parts:
        shutil.move(tmp_path / part.name, part)
    assert Scores.open(scores.folder).table()["record"].to_pylist() == list(range(30))


def longer(values):
    return [*values, values[-1]]


ODD = {
    "no text": ("text", lambda value: None, "has nulls"),
    "no fields": ("fields", lambda value: None, "has nulls"),
    "no line": ("line", lambda value: None, "has nulls"),
    "no list": ("nll", lambda values: None, "has nulls"),
    "no place": ("end", lambda values: [None, *values[1:]], "has nulls"),
    "more norms": ("error_norm", longer, "has not as many entries"),
    "more ends": ("end", longer, "has not as many entries"),
    "more words": ("word_end", longer, "has not as many entries"),
    "places behind": ("start", lambda values: [2**31 - 1] * len(values), "has places outside of the text"),
    "words behind": ("word_end", lambda values: [1000] * len(values), "has places outside of the text"),
    "places before": ("start", lambda values: [-1] * len(values), "has places outside of the text"),
    "no alternative": ("alternatives", lambda rows: [None], "is not complete"),
    "no share": ("alternatives", lambda rows: [{"token": 0, "rank": 1, "texts": ["a"], "p": []}], "is not complete"),
}


def changed(scores, name, change):
    rows = scores.table().to_pylist()
    rows[7][name] = change(rows[7][name])
    write_part(scores.parts[0], pa.Table.from_pylist(rows, SCHEMA))


@pytest.mark.parametrize("odd", ODD)
def test_rows_that_score_does_not_write(tmp_path, odd):
    name, change, why = ODD[odd]
    scores = write(tmp_path, random_rows(20))
    changed(scores, name, change)
    with pytest.raises(DataError, match=rf"part-00000\.parquet: the column '\w+' {why}.*; score the corpus again"):
        scores.table()


def test_every_verb_names_the_part(tmp_path, capsys):
    for name in ("fields", "error_norm", "start"):
        scores = write(tmp_path / name, random_rows(20))
        changed(scores, name, ODD["no list"][1])
        names = {"fields": ("summary", "report", "detect", "prune"), "start": ("report", "detect")}
        refused(capsys, scores.folder, tmp_path, scores.parts[0].name, names.get(name, ("summary", "report", "detect")))


def test_a_token_without_a_number_spoils_no_sum(tmp_path, capsys):
    scores = write(tmp_path / "scores", random_rows(20))
    changed(scores, "nll", lambda values: [float("nan"), *values[1:]])
    refused(capsys, scores.folder, tmp_path, scores.parts[0].name, ("summary", "detect"))
    assert main(verbs(scores.folder, tmp_path)["report"]) == 0  # which counts such tokens


def test_tokens_that_are_all_between_words(tmp_path, capsys):
    rows = [{"text": "a", "start": [1], "end": [1], "fields": {"labels": [i % 2]}} for i in range(30)]
    scores = write(tmp_path / "scores", rows)
    assert main(verbs(scores.folder, tmp_path)["detect"]) == 0, capsys.readouterr().err
