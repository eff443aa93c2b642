"""A grid that is stopped, or killed, goes on: no cell is lost, none is called a failure, no process stays."""

import os
import signal
from pathlib import Path

import pytest

from errornorm.cli import main
from errornorm.training.stops import Stopped
from errornorm_reproduce import work
from tests.processes import PYTHON, Process

ASK = ("reproduce", "table-lm", "--seeds", "2", "--method", "MLE")


@pytest.fixture
def ask(tmp_path):
    return [*ASK, "--results", tmp_path / "results", "--work", tmp_path / "work"]


def steps(folder):
    """Of the runs that are going on."""
    return [len(path.read_text().splitlines()) for path in folder.glob("work/cells/*/run/metrics.jsonl")]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def workers(pid):
    """The processes that have a cell."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def test_a_stopped_run_is_told_in_words_of_the_grid(tmp_path, monkeypatch, capsys):
    def stop(cell, place):
        raise Stopped(signal.SIGTERM, 8, tmp_path / "step-00000008")

    monkeypatch.setattr(work, "DOES", dict.fromkeys(work.DOES, stop))
    argv = [*ASK, "--results", tmp_path / "results", "--work", tmp_path / "work"]
    assert main(list(map(str, argv))) == 143
    said = capsys.readouterr().err
    assert said == "errornorm: stopped by SIGTERM; the cells that ran go on from their checkpoints at the next start\n"


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_grid_goes_on(ask, tmp_path, jobs, number):
    first = Process([*ask, "--jobs", jobs], tmp_path, command=PYTHON)
    assert first.until(lambda: any(steps(tmp_path)))
    there = workers(first.pid)
    first.send(number)
    assert first.code() == 128 + number
    assert not any(map(alive, there))
    assert not list(tmp_path.glob("results/*/*.failed.json"))
    Process([*ask, "--jobs", jobs], tmp_path, command=PYTHON).done()
    assert len(list(tmp_path.glob("results/table-lm/*.json"))) == 2


@pytest.mark.slow
def test_a_killed_worker_is_named_and_tried_again(ask, tmp_path):
    first = Process([*ask, "--jobs", "2"], tmp_path, command=PYTHON)
    assert first.until(lambda: any(steps(tmp_path)))
    os.kill(workers(first.pid)[0], signal.SIGKILL)
    assert first.code() == 6
    assert "ProcessDied: the process ended with -9; is there enough memory?" in first.err
    assert len(list(tmp_path.glob("results/table-lm/*.failed.json"))) == 1
    Process([*ask, "--jobs", "2"], tmp_path, command=PYTHON).done()
    assert not list(tmp_path.glob("results/*/*.failed.json"))
    assert len(list(tmp_path.glob("results/table-lm/*.json"))) == 2
