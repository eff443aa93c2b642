"""What a run would take, without a run."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.training.faults import little_room
from tests.training.runs import Train, write


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write(tmp_path_factory.mktemp("dry"))


def files(folder):
    """All names, but for what the processes here said."""
    return sorted(path.name for path in folder.rglob("*") if path.suffix not in (".out", ".err"))


@pytest.mark.parametrize("steps", [1, 1000])
def test_sane_numbers(config, steps):
    before = files(config.parent)
    run = Train(config, "--dry-run", "--json", f"training.steps={steps}", "seeds=[0, 1]", "logging.every=1").done()
    assert files(config.parent) == before  # nothing is written
    found = json.loads(run.out)
    assert (found["steps"], found["runs"], found["vocabulary"], found["parameters"]) == (steps, 2, 300, 11904)
    train, valid, test = found["counts"]
    assert (train["split"], train["records"], valid["used"], test["used"]) == ("train", 120, 12, 12)
    assert train["used"] + found["pruned"] == 120
    assert found["quarantined"] == 0
    assert 1 <= found["steps_per_epoch"] <= train["used"]
    assert 1e-4 < found["seconds_per_step"] < 5
    assert found["seconds"] == pytest.approx(2 * steps * found["seconds_per_step"])
    assert 1e8 < found["memory_bytes"] < 1e10
    weights = 4 * found["parameters"]
    assert 2 * 3 * weights < found["disk_bytes"] < 2 * 3 * weights + 4e6
    assert run.err.splitlines() == ["reading the corpus", "timing a few steps"]


def test_a_table_for_people(config):
    run = Train(config, "--dry-run").done()
    assert re.search(r"^steps +12 \(\d+\.\d epochs\)$", run.out, re.MULTILINE)
    assert re.search(r"^training time +[\d.]+ s \(\d\.\d{3} s per step, 1 run\(s\)\)$", run.out, re.MULTILINE)


def test_what_is_wrong_is_told(config):
    run = Train(config, "--dry-run", "data.train.path=nowhere.jsonl")
    assert run.code() == 3
    assert "nowhere.jsonl" in run.err.splitlines()[-1]
    assert "Traceback" not in run.err


def test_a_full_disk_is_named(config):
    for size in (1000, 10_000):
        run = Train(config, "--dry-run", fault=partial(little_room, size))
        assert run.code() == 5
        place = re.search(r"(/\S*/errornorm-\w+)\S*: make room, or choose another place\n$", run.err)[1]
        assert not Path(place).exists()


def test_an_output_that_a_run_would_refuse(tmp_path):
    config = write(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    run = Train(config, "--dry-run", f"output={tmp_path / 'mine'}")
    assert run.code() == 2
    assert "has other files (letter.txt)" in run.err
