"""The verb prune: one line for each mistake, the counts at the end."""

import json
import signal
import time

import pytest

from errornorm import cli
from tests.curation.prunable import lines, scored, slow_to_end
from tests.processes import Process
from tests.score_tables import random_rows, write


def run(capsys, *argv):
    code = cli.main(["prune", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def scores(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([*lines(20, "jsonl"), b"{oops", b'{"source": "a"}']))
    return scored(tmp_path / "scores", path).folder


def test_the_summary(capsys, scores, tmp_path):
    output = tmp_path / "clean.jsonl"
    code, out, err = run(capsys, scores, "--fraction", 0.1, "-o", output)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("dropped 2 of 20 texts (10.00%) by error_norm_mean; the cutoff is ")
    assert rest == [
        "22 records = 18 kept + 2 pruned + 2 quarantined",
        str(output),
        f"{output}.removed.jsonl",
    ]


def test_a_look_without_output(capsys, scores, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = run(capsys, scores, "--by", "random", "--fraction", 0.5)
    assert code == 0
    assert out == (
        "dropped 10 of 20 texts (50.00%) by random\n"
        "22 records = 10 kept + 10 pruned + 2 quarantined; nothing was written, give -o FILE\n"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_no_cutoff_where_nothing_went(capsys, tmp_path):
    folder = write(tmp_path, random_rows(100)).folder
    code, out, _ = run(capsys, folder, "--fraction", 0.01, "--unit", "source", "--group-by", "source_name")
    assert code == 0
    assert out.startswith("dropped 0 of 3 sources (0.00%) by error_norm_mean\n")


def test_json_has_no_infinite_numbers(capsys, tmp_path):
    rows = [
        {"text": "a b", "nll": [float("inf"), 1.0], "p_target": [0.1, 0.1], "fields": {"site": s}} for s in "aabbbb"
    ]
    argv = (write(tmp_path, rows).folder, "--by", "nll", "--fraction", 0.5, "--unit", "source", "--group-by", "site")
    code, out, _ = run(capsys, *argv, "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["sources"] == [{"name": "a", "records": 2, "score": None}]


def test_json_is_all_of_it(capsys, scores, tmp_path):
    code, out, _ = run(capsys, scores, "--threshold", 1.0, "--unit", "token", "-o", tmp_path / "w.jsonl", "--json")
    assert code == 0
    done = json.loads(out)
    assert {"records", "kept", "pruned", "quarantined", "units", "dropped", "cutoff", "output"} < done.keys()
    assert (done["kept"], done["pruned"], done["unscored"]) == (20, 0, 20)


def test_sources(capsys, tmp_path):
    rows = list(random_rows(100, sources=("web", "\x1b[31mred")))
    code, out, _ = run(capsys, write(tmp_path, rows).folder, "--fraction", 0.9, "--unit", "source", "--group-by",
                       "source_name")  # fmt: skip
    assert code == 0
    assert out.startswith("dropped 1 of 2 sources (50.00%) by error_norm_mean; the cutoff is ")
    assert "the next one, " in out
    assert "records: more than is left of the fraction" in out
    assert "\x1b" not in out


def test_mistakes_are_one_line(capsys, scores, tmp_path):
    for code, message, argv in (
        (3, "no such folder; errornorm score makes one", [tmp_path / "gone", "--fraction", 0.1]),
        (2, "give one of fraction (such as 0.1) and threshold (a score)", [scores]),
        (2, "fraction=10.0 is a share: give a number from 0 to 1", [scores, "--fraction", 10]),
        (2, "unknown score 'nl'", [scores, "--by", "nl", "--fraction", 0.1]),
        (2, "is also the input", [scores, "--fraction", 0.1, "-o", tmp_path / "a.jsonl"]),
        (3, "not the bytes that were scored", [scores, "--fraction", 0.1, "-o", tmp_path / "b.jsonl", "--corpus",
                                               scores / "quarantine.jsonl"]),
        (3, "the corpus is not there", [scores, "--fraction", 0.1, "-o", tmp_path / "b.jsonl", "--corpus", "gone"]),
    ):  # fmt: skip
        found, out, err = run(capsys, *argv)
        assert (found, out) == (code, ""), err
        assert message in err
        assert err.startswith("errornorm: ")
        assert err.count("\n") == 1
    assert not (tmp_path / "b.jsonl").exists()


def test_a_lost_record_is_exit_code_3(capsys, scores, tmp_path):
    (scores / "quarantine.jsonl").write_text("{}\n")
    code, out, err = run(capsys, scores, "--fraction", 0.1, "-o", tmp_path / "b.jsonl")
    assert (code, out) == (3, "")
    assert "22 records, but 18 kept + 2 pruned + 1 quarantined: nothing was written" in err
    assert not list(tmp_path.glob("*b.jsonl*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_leave_nothing(scores, tmp_path, tmp_path_factory, number, code):
    argv = ["prune", scores, "--fraction", "0.1", "-o", tmp_path / "b.jsonl"]
    process = Process(argv, tmp_path_factory.mktemp("printed"), prepare=slow_to_end)
    assert process.until(lambda: process.out == "written\n"), process.err
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(f".{process.pid}.part.")]) == 2
    time.sleep(0.05)
    process.send(number)
    assert process.code(30) == code, process.err
    assert process.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "scores"]
