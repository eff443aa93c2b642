import json

import pytest

from errornorm import cli
from tests.score_tables import bad_line, random_rows, write


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "scores", random_rows(30), quarantine=[bad_line(2)]).folder


def test_report_prints_what_it_did(capsys, tmp_path, scores):
    page = tmp_path / "report.html"
    assert cli.main(["report", str(scores), "-o", str(page), "--group-by", "source_name"]) == 0
    out, err = capsys.readouterr()
    first, second, third = out.splitlines()
    assert first.startswith("31 records = 30 used + 1 quarantined; ")
    assert second.startswith("30 of 30 sentences are in the page (0.")
    assert (third, err) == (str(page), "")


def test_report_as_json(capsys, tmp_path, scores):
    page = tmp_path / "report.html"
    assert cli.main(["report", str(scores), "-o", str(page), "--figures", str(tmp_path / "figures"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["records"] == done["used"] + done["quarantined"] == 31
    assert done["bytes"] == page.stat().st_size
    assert [name.rpartition("/")[2] for name in done["figures"]] == ["error_norm.png", "loss.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 3, "nowhere: no such folder; errornorm score makes one"),
        (
            ["{scores}", "--group-by", "site"],
            2,
            "no record has a field 'site'; there are: labels, noise, number, source_name",
        ),
        (
            ["{scores}", "--group-by", "nose"],
            2,
            "no record has a field 'nose' (did you mean noise?); there are: labels",
        ),
        (["{scores}", "-o", "{scores}"], 2, "choose a place beside it, such as"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, tmp_path, scores, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *(argument.format(scores=scores) for argument in arguments)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
