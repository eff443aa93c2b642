"""The folder of a run: one process at a time, no mix-ups, no half files."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

import errornorm
from errornorm.data.lines import DataError
from errornorm.training import rows, rundir
from errornorm.training.locks import BusyError, Lock
from errornorm.training.rundir import RunDir, read_rows


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path / "run")


def begin(run):
    with run.begun(resume=False):
        run.write_text(run.config, "steps: 1\n")


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def test_paths(run):
    names = {
        "config": "config.yaml", "manifest": "manifest.json", "metrics": "metrics.jsonl", "timing": "timing.jsonl",
        "data": "data", "checkpoints": "checkpoints", "model": "model",
        "evaluation": "evaluation.json", "curves": "curves.png", "lock": ".lock",
    }  # fmt: skip
    assert {key: getattr(run, key).relative_to(run.path).as_posix() for key in names} == names
    assert run.outputs("test") == run.path / "outputs-test.jsonl"


def test_a_new_run_then_only_resume(run):
    begin(run)
    assert run.has_run
    with pytest.raises(ValueError, match="run has a run already: --resume goes on with it, or choose another output"):
        begin(run)
    with run.begun(resume=True):
        pass
    assert listed(run.path) == [".lock", "config.yaml"]


def test_a_run_that_does_not_begin_leaves_no_folder(run):
    with run.begun(resume=False):
        assert run.lock.exists()
    assert not run.path.exists()
    run.path.mkdir()  # the user's own stays
    with run.begun(resume=False):
        pass
    assert listed(run.path) == [".lock"]


def test_nothing_to_resume(run):
    with pytest.raises(ValueError, match="run has no run to go on with: check the name, or leave out --resume"):
        run.begun(resume=True).__enter__()
    assert not run.path.exists()


def test_files_that_are_not_ours(run):
    run.path.mkdir()
    for name in ("config.yaml", "data", "notes.txt", "zzz"):
        (run.path / name).mkdir()
    for call in (lambda: run.check(False), lambda: run.prepare(False), lambda: run.locked().__enter__()):
        with pytest.raises(ValueError, match=r"other files \(config.yaml, data, notes.txt, ...\): choose a new or an"):
            call()
    assert listed(run.path) == ["config.yaml", "data", "notes.txt", "zzz"]


def test_a_configuration_alone_is_no_run(run):
    run.path.mkdir()
    run.config.write_text("the user's own")
    with pytest.raises(ValueError, match=r"other files \(config.yaml\)"):
        run.check(resume=False)
    with pytest.raises(ValueError, match="no run to go on with"):
        run.check(resume=True)


def test_an_output_that_is_a_file(run):
    run.path.write_text("")
    with pytest.raises(ValueError, match="run is a file: choose another output"):
        begin(run)


def test_killed_before_it_began(run):
    """A lock, and what a killed process left, do not make a run."""
    run.path.mkdir()
    (run.path / ".lock").touch()
    (run.path / ".config.yaml.123.part").touch()
    (run.path / ".stage-model~host~1~ab").mkdir()
    with run.begun(resume=False):
        assert ".config.yaml.123.part" not in listed(run.path)


def test_runs_of_several_seeds(run):
    begin(RunDir(run.path / "seed-0"))
    begin(RunDir(run.path / "seed-1"))
    for resume in (False, True):
        with pytest.raises(ValueError, match=r"has runs of several seeds \(seed-0, seed-1\): name them in seeds, or"):
            run.check(resume)


HOLD = """
    import os, sys, time
    from pathlib import Path
    from errornorm.training.rundir import RunDir

    with RunDir(Path(sys.argv[1])).locked():
        if sys.argv[2] == "fork":
            source, pipe = os.pipe()
            if os.fork() == 0:
                os.write(pipe, b"x")
                time.sleep(60)  # as a loader of data, that outlives its parent for a while
            os.read(source, 1)
        print(os.getpid(), flush=True)
        time.sleep(60)
"""


@pytest.fixture
def holder(run):
    started = []

    def start(kind="alone"):
        command = [sys.executable, "-c", textwrap.dedent(HOLD), run.path, kind]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert int(process.stdout.readline()) == process.pid
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_second_process_is_refused_at_once(run, holder):
    process = holder()
    start = time.monotonic()
    with pytest.raises(BusyError) as caught:
        run.locked().__enter__()
    assert time.monotonic() - start < 1
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.EBUSY
    owner = json.loads(Lock(run.path).owner.read_text())
    assert caught.value.strerror == (
        f"{run.path} is in use by process {process.pid} on {owner['host']} since {owner['since']}: "
        "wait for it, stop it, or choose another output"
    )


def test_the_owner_may_be_unknown(run, holder):
    holder()
    Lock(run.path).owner.unlink()
    with pytest.raises(BusyError, match="is in use by another process"):
        run.locked().__enter__()


@pytest.mark.parametrize("kind", ["alone", "fork"])
def test_the_lock_of_a_killed_process_is_free(run, holder, kind):
    process = holder(kind)
    process.kill()
    process.wait()
    assert Lock(run.path).owner.exists()
    with run.locked():
        assert json.loads(Lock(run.path).owner.read_text())["pid"] == os.getpid()
    assert listed(run.path) == [".lock"]


def test_the_same_process_is_refused_too_and_the_lock_ends_with_an_error(run):
    with run.locked(), pytest.raises(BusyError, match=f"process {os.getpid()} on"):
        RunDir(run.path).locked().__enter__()
    with pytest.raises(ZeroDivisionError), run.locked():
        1 / 0  # noqa: B018
    with run.locked():
        pass


def test_other_ranks_write_nothing(run):
    other = RunDir(run.path, main=False)
    begin(run)
    run.append(run.metrics, {"step": 1})
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    with run.locked(), other.begun(resume=False):
        other.write_json(other.manifest, {})
        other.write_text(other.config, "")
        other.append(other.metrics, {"step": 2})
        other.truncate_rows(other.metrics, 0)
        other.sync_rows()
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before
    assert read_rows(other.metrics) == [{"step": 1}]


def test_json_is_strict(run):
    run.path.mkdir()
    value = {"a": math.nan, "b": [1.5, -math.inf], "c": {"d": math.inf, "ü": Path("x/y")}, "bad": "\udc80"}
    run.write_json(run.evaluation, value)
    run.append(run.metrics, value)
    expected = {
        "a": None,
        "b": [1.5, None],
        "c": {"d": None, "ü": "x/y", "not_finite": {"d": "inf"}},
        "bad": "\udc80",
        "not_finite": {"a": "nan"},
    }
    assert json.loads(run.evaluation.read_bytes()) == expected
    assert read_rows(run.metrics) == [expected]
    assert "ü" in run.metrics.read_text("utf-8")
    with pytest.raises(TypeError):
        run.append(run.metrics, {"a": object()})
    assert read_rows(run.metrics) == [expected]


def test_a_file_is_written_completely_or_not_at_all(run, monkeypatch):
    begin(run)

    def fail(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        run.write_text(run.config, "half")
    assert run.config.read_text() == "steps: 1\n"
    assert listed(run.path) == [".lock", "config.yaml"]


def test_half_a_row_at_the_end_does_not_count(run):
    begin(run)
    for step in (1, 2):
        run.append(run.metrics, {"step": step, "loss": 0.1 + 0.2})
    with run.metrics.open("a") as file:
        file.write('{"step": 3, "los')
    assert [row["step"] for row in read_rows(run.metrics)] == [1, 2]
    run.append(run.metrics, {"step": 4})
    assert [row["step"] for row in read_rows(run.metrics)] == [1, 2, 4]
    assert read_rows(run.metrics)[0]["loss"] == 0.1 + 0.2


@pytest.mark.parametrize("tail", [b"\0\0\0", b'{"text": "\xc3', b"{"])
def test_other_halves_of_a_row(run, tail):
    run.path.mkdir()
    run.metrics.write_bytes(b'{"step": 1}\n' + tail)
    assert read_rows(run.metrics) == [{"step": 1}]
    run.truncate_rows(run.metrics, 1)
    assert run.metrics.read_bytes() == b'{"step": 1}\n'


def test_a_whole_row_without_a_line_feed_counts(run):
    run.path.mkdir()
    run.metrics.write_text('{"step": 1}\n{"step": 2}')
    assert len(read_rows(run.metrics)) == 2
    run.append(run.metrics, {"step": 3})
    assert [row["step"] for row in read_rows(run.metrics)] == [1, 2, 3]


@pytest.mark.parametrize(("line", "where"), [('{"step": 2, "lo', ":2:13"), ("[2]", ":2"), ('{"a": 1}{"b": 2}', ":2:9")])
def test_a_bad_row_in_the_middle_is_told(run, line, where):
    run.path.mkdir()
    run.metrics.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(DataError, match=f"metrics.jsonl{where}: not .*; remove the line, or start a new run"):
        read_rows(run.metrics)


def test_rows_after_a_step_are_cut_off(run):
    begin(run)
    run.truncate_rows(run.metrics, 5)
    assert not run.metrics.exists()
    for step in range(1, 9):
        run.append(run.metrics, {"step": step, "loss": 1 / step, "word": "ß"})
        if step == 5:
            whole = run.metrics.read_bytes()
    run.append(run.metrics, {"step": 5, "split": "valid"})
    run.truncate_rows(run.metrics, 5)
    assert run.metrics.read_bytes() == whole + b'{"step": 5, "split": "valid"}\n'
    run.sync_rows()


class Disk:
    """A file on a disk that has room for a few bytes more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data[: self.room])


@pytest.mark.parametrize("room", [0, 3])
def test_a_row_that_does_not_fit_leaves_no_half(run, monkeypatch, room):
    begin(run)
    run.append(run.metrics, {"step": 1})
    whole, opened = run.metrics.read_bytes(), Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **more: Disk(opened(self, *args, **more), room))
    with pytest.raises(OSError, match="No space") as caught:
        run.append(run.metrics, {"step": 2})
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(run.metrics))
    assert run.metrics.read_bytes() == whole


def test_versions_leave_out_what_is_absent(monkeypatch):
    monkeypatch.setattr(rundir, "PACKAGES", ("torch", "no-such-package"))
    found = rundir.versions()
    assert found.keys() == {"python", "platform", "torch"}
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_manifest(run):
    data = [{"name": "train", "path": "/a/x.jsonl", "sha256": "00", "records": 3, "used": 2}]
    made = rundir.manifest(
        command=("errornorm", "train"), seed=1, method="mle", objective="Objective()", task="translation",
        parameters=10, data=data, steps=5,
    )  # fmt: skip
    assert made["errornorm"] == errornorm.__version__
    assert made["versions"]["python"]
    assert (made["command"], made["seed"], made["steps"]) == (["errornorm", "train"], 1, 5)
    assert made["data"] == data
    moved, changed = [{**data[0], "path": "/b/y.jsonl"}], [{**data[0], "used": 1}]
    assert made["data_hash"] == rundir.data_hash(moved) != rundir.data_hash(changed)
    begin(run)
    run.write_json(run.manifest, made)
    assert json.loads(run.manifest.read_text()) == made
    assert rows.strict(made) == made
