"""The demo at work, on less: rows, page, the user's own data, a second run, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from errornorm.data import grammar
from errornorm.data.lines import DataError
from errornorm.demo import run as demo
from errornorm.demo import settings, workers
from errornorm.specs import objective
from errornorm.training.config import TrainConfig
from errornorm.training.locks import BusyError, Lock
from tests.processes import server

SMALL = replace(settings.EMBEDDED, train=200, test=12, steps=6, tokens=400)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Workers that need not import what they need. Those of the last test, in a process of its own, do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multiprocessing.get_context", lambda name: server)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    told = []
    result = demo.run(folder, size=SMALL, methods=["MLE", "ENT"], tell=told.append)
    return folder, result, told


def test_the_page_and_the_rows(done):
    folder, result, told = done
    assert [row.method for row in result.rows] == ["MLE", "ENT"]
    assert [row.spec for row in result.rows] == ["mle", "ent_fraction(0.1, start=4)"]
    for row in result.rows:
        assert 0 <= row.correct_beam <= 1
        assert 0 <= row.copies_greedy <= 1
        assert row.seconds > 0
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert "ent_fraction(0.1, start=4)" in text
    assert json.loads((folder / "results.json").read_text())["rows"][1]["method"] == "ENT"
    assert any("of 6" in line for line in told)
    assert "33% are untranslated copies" in result.settings["Training pairs"]


def test_the_numbers_are_those_of_the_outputs(done):
    folder, result, _ = done
    captions = [caption for caption, _ in grammar.corpus(SMALL.train + SMALL.test, 0)][SMALL.train :]
    for row, name in zip(result.rows, ("mle", "ent"), strict=True):
        lines = (folder / "runs" / name / "outputs-test.jsonl").read_text(encoding="utf-8").splitlines()
        outputs = [json.loads(line) for line in lines]
        assert [line["source"] for line in outputs] == [caption.english for caption in captions]
        right = [c.is_translated_by(line["output"]) for c, line in zip(captions, outputs, strict=True)]
        assert row.correct_beam == sum(right) / len(right)


def test_no_caption_of_the_test_is_in_the_training_data(done):
    folder, _, _ = done
    train = {json.loads(line)["source"] for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()}
    test = {json.loads(line)["source"] for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()}
    assert len(test) == SMALL.test
    assert not train & test


def test_own_data_and_a_second_run_in_the_same_folder(done, tmp_path, monkeypatch):
    folder, _, _ = done
    monkeypatch.setattr("errornorm.demo.workers._cores", lambda: 1)  # so small that two threads wait for each other
    pairs = grammar.corpus(120, 5)
    english = [f"{caption.english}\u2028" for caption, _ in pairs]  # for some that is the end of a line
    (tmp_path / "en.txt").write_text("\n".join(english) + "\n\0\n", encoding="utf-8")
    (tmp_path / "fr.txt").write_text("\n".join(french for _, french in pairs) + "\nune ligne\n", encoding="utf-8")
    result = demo.run(
        folder, source=tmp_path / "en.txt", target=tmp_path / "fr.txt", size=SMALL, methods=["ENT"], seed=3
    )
    assert result.rows[0].correct_beam is None
    assert "correct, beam 5" not in result.table()[0]
    assert result.settings["Records"] == "121 read, 1 quarantined"
    assert sorted(path.name for path in (folder / "runs").iterdir()) == ["ent"]
    assert (folder / "quarantine.jsonl").is_file()


def test_what_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ValueError, match=r"has other files \(thesis.tex\): choose another folder"):
        demo.run(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "dear"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("mine")
    with pytest.raises(ValueError, match=r"has other files \(train.jsonl\)"):
        demo.run(tmp_path / "data")
    assert (tmp_path / "data" / "train.jsonl").read_text() == "mine"


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    folder = tmp_path / os.fsdecode(b"d\xff")
    with pytest.raises(ValueError, match="this name is not UTF-8: rename it, or choose another"):
        demo.run(folder)
    assert not folder.exists()


def test_two_at_a_time_do_not_empty_each_other(tmp_path):
    (tmp_path / demo.MARK).touch()
    (tmp_path / "train.jsonl").write_text("of the other")
    with Lock(tmp_path).held(), pytest.raises(BusyError, match=f"is in use by process {os.getpid()}"):
        demo.run(tmp_path, size=SMALL)
    assert (tmp_path / "train.jsonl").read_text() == "of the other"


def test_too_little_data(tmp_path):
    for name in ("en.txt", "fr.txt"):
        (tmp_path / name).write_text("one\ntwo\n")
    with pytest.raises(DataError, match="2 pairs are too few"):
        demo.run(tmp_path / "out", source=tmp_path / "en.txt", target=tmp_path / "fr.txt")


def test_the_methods_are_valid():
    assert list(settings.METHODS) == ["MLE", "Loss truncation", "Token loss truncation", "TaiLr", "ENT", "ENT-Auto"]
    for text in settings.METHODS.values():
        assert objective(text.format(start=400))


def test_what_goes_wrong_in_a_worker_is_told_as_it_was(tmp_path):
    (tmp_path / "full").write_text("no folder")
    data = {"train": {"path": tmp_path / "a.jsonl"}}
    config = {"task": "translation", "output": tmp_path / "full" / "run", "data": data}
    with pytest.raises(NotADirectoryError):
        workers.train_all([TrainConfig.model_validate(config)], print)
    config["output"] = tmp_path / "run"
    with pytest.raises(DataError, match=r"ent_auto\(\): .*a.jsonl: No such file"):
        workers.train_all([TrainConfig.model_validate(config)], print)


def test_ctrl_c_ends_the_workers_too(tmp_path):
    argv = [sys.executable, "-m", "errornorm.cli", "demo", "--output", str(tmp_path / "demo")]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.glob("demo/runs/*/metrics.jsonl")):  # the workers are at work
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("errornorm: stopped by Ctrl-C; no half-written file is left\n")
    assert not (tmp_path / "demo" / "index.html").exists()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a worker is still alive")
