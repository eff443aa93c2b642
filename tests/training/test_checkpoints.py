"""Checkpoints: complete or not there, whenever the process is killed or the disk is full."""

import errno
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext

import pytest

from errornorm.training import checkpoints, disk
from errornorm.training.checkpoints import SUMS, name, newest, publish, rotate, staging, verify
from errornorm.training.disk import disk_full, room_for

HOST = platform.node()


def save(parent, step, text="weights"):
    folder = parent / name(step)
    with staging(folder) as stage:
        (stage / "model.bin").write_text(f"{text} {step}")
        (stage / "state").mkdir()
        (stage / "state" / "rank-0.pt").write_bytes(bytes(range(256)) * 10)
    return folder


def names(parent):
    return sorted(path.name for path in parent.iterdir())


@pytest.fixture(params=[True, False], ids=["exchange", "two renamings"])
def exchange(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(checkpoints, "_exchange", lambda left, right: False)


def test_a_stage_is_beside_its_place_and_becomes_it(tmp_path):
    folder = tmp_path / "checkpoints" / name(7)
    with staging(folder) as stage:
        assert stage.parent == folder.parent
        assert stage.name.startswith(".stage-")
        (stage / "a").write_text("x")
        assert not folder.exists()
    assert names(folder.parent) == ["step-00000007"]
    assert names(folder) == ["a", SUMS]
    assert verify(folder) is None


def test_checksums_are_of_every_file(tmp_path):
    folder = save(tmp_path, 1)
    sums = json.loads((folder / SUMS).read_text())
    assert sums.keys() == {"model.bin", "state/rank-0.pt"}
    assert sums["model.bin"] == {
        "sha256": hashlib.sha256(b"weights 1").hexdigest(),
        "bytes": len("weights 1"),
    }


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_nothing_is_left(tmp_path, error):
    save(tmp_path, 1)

    def half():
        with staging(tmp_path / name(2)) as stage:
            (stage / "model.bin").write_text("half")
            raise error

    with pytest.raises(error):
        half()
    assert names(tmp_path) == ["step-00000001"]


def test_names():
    assert name(200) == "step-00000200"
    assert name(123456789) == "step-123456789"
    for step in (0, 200, 123456789):
        assert checkpoints.step_of(checkpoints.Path("x") / name(step)) == step
    with pytest.raises(ValueError, match="model is no checkpoint"):
        checkpoints.step_of(checkpoints.Path("model"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: (f / SUMS).unlink(), "no checksums.json"),
        (lambda f: shutil.rmtree(f), "no checksums.json"),
        (lambda f: (f / SUMS).write_text('{"model.bin": {"sha'), "checksums.json cannot be read"),
        (lambda f: (f / SUMS).write_text("[1]"), "checksums.json cannot be read"),
        (lambda f: (f / SUMS).write_text('{"model.bin": 3}'), "checksums.json cannot be read"),
        (lambda f: (f / SUMS).write_bytes(b"\xff\xfe"), "checksums.json cannot be read"),
        (lambda f: (f / "model.bin").unlink(), "missing file model.bin"),
        (lambda f: shutil.rmtree(f / "state"), "missing file state/rank-0.pt"),
        (lambda f: (f / "model.bin").write_text("weights 1 and more"), "9 extra bytes in model.bin"),
        (lambda f: (f / "model.bin").write_text("weig"), "5 bytes missing in model.bin"),
        (lambda f: (f / "model.bin").write_text("weights 2"), "checksum differs: model.bin"),
        (lambda f: ((f / "model.bin").unlink(), (f / "model.bin").mkdir()), None),
        (lambda f: (f / ".DS_Store").write_text("a file more does no harm"), ""),
    ],
)
def test_verify_says_what_is_wrong(tmp_path, damage, reason):
    folder = save(tmp_path, 1)
    assert verify(folder) is None
    damage(folder)
    if reason is None:
        assert "model.bin" in verify(folder)
    else:
        assert (verify(folder) or "") == reason


def test_newest_passes_over_what_is_damaged_and_leaves_it_alone(tmp_path, caplog):
    assert newest(tmp_path / "missing") is None
    assert newest(tmp_path) is None
    for step in (5, 90, 100, 1000):
        save(tmp_path, step)
    (tmp_path / name(1000) / "model.bin").write_text("WEIGHTS 1000")
    (tmp_path / name(100) / SUMS).unlink()
    (tmp_path / "step-abc").mkdir()
    (tmp_path / name(2000)).write_text("a file")
    with caplog.at_level(logging.WARNING, "errornorm"):
        assert newest(tmp_path) == tmp_path / name(90)
    assert len(caplog.messages) == 2
    assert all("\n" not in message for message in caplog.messages)
    assert "step-00001000 cannot be used (checksum differs: model.bin)" in caplog.messages[0]
    assert "step-00000100 cannot be used (no checksums.json)" in caplog.messages[1]
    assert (tmp_path / name(1000)).exists()
    assert (tmp_path / name(100)).exists()


@pytest.mark.usefixtures("exchange")
def test_a_checkpoint_is_replaced(tmp_path):
    save(tmp_path, 1, "old")
    folder = save(tmp_path, 1, "new")
    assert (folder / "model.bin").read_text() == "new 1"
    assert names(tmp_path) == [name(1)]
    assert verify(folder) is None


@pytest.mark.skipif(sys.platform != "linux", reason="one step only on Linux")
def test_names_are_exchanged_in_one_step(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "inside").touch()
    (tmp_path / "b").mkdir()
    assert checkpoints._exchange(tmp_path / "a", tmp_path / "b")
    assert names(tmp_path / "b") == ["inside"]
    assert not checkpoints._exchange(tmp_path / "a", tmp_path / "missing")


def test_the_old_one_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    folder = save(tmp_path, 1, "old")
    rename = checkpoints.Path.rename

    def failing(self, target):
        if self.name.startswith(".stage"):
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(checkpoints, "_exchange", lambda left, right: False)
    monkeypatch.setattr(checkpoints.Path, "rename", failing)
    with pytest.raises(OSError, match="no"):
        save(tmp_path, 1, "new")
    assert (folder / "model.bin").read_text() == "old 1"
    assert names(tmp_path) == [name(1)]


def test_killed_between_two_renamings(tmp_path):
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    aside = folder.rename(tmp_path / f".old-{name(2)}~{HOST}~{dead()}~ab12")
    assert newest(tmp_path) == aside
    assert checkpoints.step_of(aside) == 2
    rotate(tmp_path, keep=5)
    assert names(tmp_path) == [name(1), name(2)]
    assert newest(tmp_path) == folder


def test_links_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing was written"), staging(tmp_path / name(1)):
        pass
    with pytest.raises(ValueError, match="plain files"), staging(tmp_path / name(1)) as stage:
        (stage / "link").symlink_to(__file__)
    assert names(tmp_path) == []


def test_a_file_or_link_in_its_place_is_replaced(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "keep").touch()
    (tmp_path / name(1)).symlink_to(elsewhere)
    (tmp_path / name(2)).touch()
    for step in (1, 2):
        assert verify(save(tmp_path, step)) is None
    assert names(tmp_path) == ["elsewhere", name(1), name(2)]
    assert names(elsewhere) == ["keep"]


def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_rotate_keeps_the_newest_and_the_best(tmp_path):
    for step in range(10, 70, 10):
        save(tmp_path, step)
    rotate(tmp_path, keep=2, best=20)
    assert names(tmp_path) == [name(20), name(50), name(60)]
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == [name(60)]
    with pytest.raises(ValueError, match="keep is 0"):
        rotate(tmp_path, keep=0)


def test_rotate_does_not_count_what_is_damaged(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    (tmp_path / name(4) / "model.bin").write_text("WEIGHTS 4")
    (tmp_path / name(1) / SUMS).unlink()
    checkpoints._verdicts.clear()  # as in a new process
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == [name(1), name(3), name(4)]


def test_rotate_reads_nothing_that_was_just_written_or_verified(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        save(tmp_path, step)
    monkeypatch.setattr(checkpoints, "_hashed", lambda *entry: pytest.fail("read again"))
    rotate(tmp_path, keep=2)
    assert names(tmp_path) == [name(2), name(3)]


def test_rotate_sweeps_after_the_dead_only(tmp_path):
    save(tmp_path, 1)
    pid = dead()
    stale = [f".stage-{name(2)}~{HOST}~{pid}~ab", f".trash-{name(0)}~{HOST}~{pid}~ab", f".old-{name(1)}~{HOST}~{pid}~0"]
    alive = [f".stage-{name(2)}~{HOST}~1~ab", f".stage-{name(2)}~elsewhere~{pid}~ab", ".stage-mine", ".hidden~file"]
    old = f".stage-{name(2)}~elsewhere~{pid}~cd"
    for folder in (*stale, *alive, old):
        (tmp_path / folder / "inside").mkdir(parents=True)
    past = time.time() - 2 * checkpoints.DAY
    os.utime(tmp_path / old, (past, past))
    with staging(tmp_path / name(3)) as stage:
        (stage / "a").touch()
        rotate(tmp_path, keep=1)
        assert names(tmp_path) == sorted([*alive, stage.name, name(1)])


def test_what_cannot_be_removed_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    for step in (1, 2):
        save(tmp_path, step)

    def fail(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", fail)
    rotate(tmp_path, keep=1)
    assert "could not be removed (Permission denied)" in caplog.text
    monkeypatch.undo()
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == [name(2)]


KILLS = """
    import os, random, signal, sys, time
    from pathlib import Path
    from errornorm.training import checkpoints
    from errornorm.training.checkpoints import name, newest, rotate, staging, step_of

    parent, swap = Path(sys.argv[1]), sys.argv[2] == "swap"
    if not swap:
        rename = Path.rename
        checkpoints._exchange = lambda left, right: False
        # More time between the two.
        Path.rename = lambda self, to: (time.sleep(0.01 * self.name.startswith(".stage")), rename(self, to))[1]

    def content(step, part):
        return (f"{step}.{part} " * 5000).encode()

    def child(pipe):
        start = step_of(newest(parent)) if newest(parent) else 0
        for step in range(start, start + 10**6):
            for _ in range(2):  # the second time in the place of the first
                with staging(parent / name(step)) as stage:
                    for part in range(3):
                        (stage / str(part)).write_bytes(content(step, part))
                os.write(pipe, b"%d\\n" % step)
            rotate(parent, keep=2)

    rng, last, hidden = random.Random(0), -1, 0
    for _ in range(30):
        source, pipe = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(pipe)
        os.close(pipe)
        started = time.monotonic()
        first = os.read(source, 100)  # so that it is in the loop, on a slow disk too
        time.sleep(rng.uniform(0, 2) * (time.monotonic() - started))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with open(source) as file:
            reported = [int(line) for line in (first.decode() + file.read()).split()]
        last = max([last, *reported])
        hidden += any(path.name.startswith(".") for path in parent.iterdir())
        found = newest(parent)
        assert found is not None, os.listdir(parent)
        step = step_of(found)
        assert last <= step <= last + 1, (last, step)
        for part in range(3):
            assert (found / str(part)).read_bytes() == content(step, part)
    rotate(parent, keep=2)
    left = os.listdir(parent)
    assert len(left) == 2 and not any(name.startswith(".") for name in left), left
    print(last, hidden)
"""


@pytest.mark.skipif(os.name != "posix", reason="forks")
@pytest.mark.parametrize("way", ["swap", "two renamings"])
def test_thirty_kills_at_random_moments(tmp_path, way):
    script = textwrap.dedent(KILLS)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path, way], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    steps, hidden = map(int, done.stdout.split())
    assert steps > 0
    assert hidden > 0  # kills in the middle of something


@pytest.mark.parametrize("where", ["fsync", "written"])
def test_a_full_disk_leaves_the_others_untouched(tmp_path, monkeypatch, where):
    save(tmp_path, 1)

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync", full) if where == "fsync" else (checkpoints, "written", full)))
    with (
        pytest.raises(OSError, match="No space left") as caught,
        room_for(tmp_path),
        staging(tmp_path / name(2)) as stage,
    ):
        (stage / "model.bin").write_text("x")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path)
    monkeypatch.undo()
    assert names(tmp_path) == [name(1)]
    assert newest(tmp_path) == tmp_path / name(1)


@pytest.fixture
def small_disk(tmp_path):
    """A megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"cannot mount a small disk: {error}")
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def torch_path(folder):
    import torch

    torch.save({"a": torch.zeros(2**20)}, folder / "a.pt")


def torch_file(folder):
    import torch

    with (folder / "a.pt").open("wb") as file:
        torch.save({"a": torch.zeros(2**20)}, file)


def safetensors_file(folder):
    torch, library = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    library.save_file({"a": torch.zeros(2**20)}, folder / "a.safetensors")


def tokenizers_file(folder):
    library = pytest.importorskip("tokenizers")
    words = {f"word number {i}": i for i in range(100_000)}
    library.Tokenizer(library.models.WordLevel(words, unk_token="word number 0")).save(str(folder / "tokenizer.json"))


def numpy_file(folder):
    numpy = pytest.importorskip("numpy")
    numpy.save(folder / "a.npy", numpy.zeros(2**20))


def plain_file(folder):
    (folder / "a").write_bytes(bytes(2**21))


WRITERS = [torch_path, torch_file, safetensors_file, tokenizers_file, numpy_file, plain_file]


@pytest.mark.parametrize("write", WRITERS)
def test_a_disk_that_is_really_full(small_disk, write):
    save(small_disk, 1)
    with pytest.raises(Exception) as caught, staging(small_disk / name(2)) as stage:  # noqa: PT011
        write(stage)
    assert disk_full(caught.value), repr(caught.value)
    with pytest.raises(OSError) as told, room_for(small_disk), staging(small_disk / name(2)) as stage:  # noqa: PT011
        write(stage)
    assert told.value.errno == errno.ENOSPC
    assert told.value.filename is not None
    assert names(small_disk) == [name(1)]
    assert newest(small_disk) == small_disk / name(1)


def test_a_disk_without_room_for_the_checksums(small_disk):
    save(small_disk, 1)
    page = os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(OSError, match="No space left"), staging(small_disk / name(2)) as stage:
        (stage / "model.bin").write_bytes(bytes(shutil.disk_usage(small_disk).free // page * page))
    assert names(small_disk) == [name(1)]
    assert save(small_disk, 2) == newest(small_disk)


SPACE = "No space left on device"


@pytest.mark.parametrize(
    ("error", "behind", "full"),
    [
        (OSError(errno.ENOSPC, SPACE), None, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), None, True),
        (OSError("1048576 requested and 131056 written"), None, True),
        (RuntimeError("write(): fd 3 failed with No space left on device"), None, True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), None, True),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), None, True),
        (RuntimeError("basic_ios::clear: iostream error"), None, True),
        (Exception("Error while serializing: I/O error: File too large (os error 27)"), None, True),
        (RuntimeError("unexpected pos 704 vs 598"), OSError(errno.ENOSPC, SPACE), True),
        (RuntimeError("unexpected pos 704 vs 598"), OSError(errno.EIO, "Input/output error"), False),
        (ValueError("could not save"), OSError(errno.ENOSPC, SPACE), True),
        (OSError(errno.EACCES, "Permission denied"), None, False),
        (RuntimeError("CUDA out of memory"), None, False),
        (KeyboardInterrupt(), None, False),
    ],
)
@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_disk_full(error, behind, full, link):
    setattr(error, link, behind)
    assert disk_full(error) is full


def test_disk_full_goes_around_a_ring_of_errors():
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__context__ = b, a
    assert not disk_full(a)


def test_room_for_tells_what_it_knows(tmp_path):
    with pytest.raises(OSError) as caught, room_for(tmp_path):  # noqa: PT011
        raise RuntimeError("unexpected pos 576 vs 534")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert caught.value.strerror == f"{SPACE} (unexpected pos 576 vs 534)"
    for error in (OSError(errno.ENOSPC, SPACE, "a/b"), OSError(errno.EACCES, "no"), ValueError("x")):
        with pytest.raises(type(error)) as caught, room_for(tmp_path):
            raise error
        assert caught.value is error
    for number in (errno.EFBIG, errno.EDQUOT):
        with pytest.raises(OSError) as caught, room_for(tmp_path):  # noqa: PT011
            raise OSError(number, os.strerror(number))
        told = caught.value
        assert (told.errno, told.strerror, told.filename) == (number, os.strerror(number), str(tmp_path))
    with room_for(tmp_path), nullcontext():
        pass


def test_folders_are_synced_before_and_after_the_renaming(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(checkpoints, "sync", lambda folder: synced.append((folder.name, (tmp_path / name(1)).exists())))
    stage = tmp_path / "stage"
    (stage / "state").mkdir(parents=True)
    (stage / "state" / "a").touch()
    publish(stage, tmp_path / name(1))
    assert synced == [("state", False), ("stage", False), (tmp_path.name, True)]
    disk.sync(tmp_path)
