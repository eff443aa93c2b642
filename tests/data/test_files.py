"""Where files are written: never over a device, through a link, and with a name when there is no room."""

import errno
import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager

import pytest

from errornorm.cli import main
from errornorm.data.files import real, require_place, written, written_bytes
from errornorm.data.lines import read_lines
from errornorm.training import yamltree
from errornorm.training.checkpoints import SUMS, newest

LINE = '{"source": "a dog", "target": "un chien"}\n'


def corrupt(corpus, output):
    return main(["corrupt", str(corpus), "--noise", "untranslated=1", "-o", str(output)])


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(LINE)
    return path


def test_devices_and_pipes_are_not_replaced(tmp_path, corpus, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link"):
        assert corrupt(corpus, path) == 2
        assert "is a device or a pipe: choose another name" in capsys.readouterr().err
        with pytest.raises(ValueError, match="is a device or a pipe"), written(path):
            pass
        assert path.is_fifo()


@pytest.mark.parametrize("name", ["out.txt", "/dev/stdout"])
def test_what_is_printed_is_not_replaced(tmp_path, name):
    code = (
        "import pathlib, sys; from errornorm.data.files import require_place; require_place(pathlib.Path(sys.argv[1]))"
    )
    with (tmp_path / "out.txt").open("w") as file:
        done = subprocess.run(
            [sys.executable, "-c", code, name], stdout=file, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert f"{name} is where this command prints: choose another name" in done.stderr


def test_a_link_stays_and_its_file_is_written(tmp_path, corpus):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "there" / "b.jsonl")
    for _ in range(2):
        assert corrupt(corpus, tmp_path / "link.jsonl") == 0
        assert (tmp_path / "link.jsonl").is_symlink()
        assert (tmp_path / "there" / "b.jsonl").read_text().count("\n") == 2
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["b.jsonl"]


def test_links_in_a_circle_are_no_bug(tmp_path, corpus, capsys):
    (tmp_path / "one.jsonl").symlink_to(tmp_path / "two.jsonl")
    (tmp_path / "two.jsonl").symlink_to(tmp_path / "one.jsonl")
    assert real(tmp_path / "one.jsonl" / "a").parent.parent == real(tmp_path)
    assert corrupt(corpus, tmp_path / "one.jsonl") == 2
    assert "is a link that leads to itself" in capsys.readouterr().err
    assert corrupt(tmp_path / "one.jsonl", tmp_path / "b.jsonl") == 3
    assert "Too many levels of symbolic links" in capsys.readouterr().err
    assert (tmp_path / "one.jsonl").is_symlink()


def test_what_is_read_is_no_place_for_what_is_written(tmp_path, corpus):
    (tmp_path / "link").symlink_to(corpus)
    require_place(tmp_path / "new", corpus, None)
    for path, said in ((tmp_path, "is a folder"), (corpus, "is also the input"), (tmp_path / "link", "also the input")):
        with pytest.raises(ValueError, match=said):
            require_place(path, corpus, None)


def test_a_file_that_may_not_grow_is_named(tmp_path, corpus, capsys):
    corpus.write_text(LINE * 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        assert corrupt(corpus, tmp_path / "b.jsonl") == 5
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = f"{os.strerror(errno.EFBIG)}: {tmp_path / 'b.jsonl'}: make room, or choose another place"
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [corpus]


@contextmanager
def no_more_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(first := os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_open_files_are_no_fault_of_the_file(tmp_path, corpus, capsys):
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / SUMS).write_text("{}")
    assert corrupt(corpus, tmp_path / "b.jsonl") == 0  # everything is imported
    with no_more_files():
        assert corrupt(corpus, tmp_path / "b.jsonl") == 5
        for read in (lambda: list(read_lines(corpus)), lambda: yamltree.read(corpus), lambda: newest(tmp_path)):
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                read()  # a checkpoint would be taken for damaged, and an older one for the newest
    assert newest(tmp_path) == tmp_path / "step-00000001"
    assert capsys.readouterr().err.endswith("raise the limit (ulimit -n)\n")


def test_returns_at_the_limit_do_not_cut_a_line_in_two(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"aaaa\r\rbbbb\nccc\n")
    long, last = read_lines(tmp_path / "a.txt", max_bytes=4)
    assert "longer than 4 bytes" in long.reason
    assert (last.text, last.where.line) == ("ccc", 2)


def test_a_name_that_is_not_utf8_is_written_down(tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.jsonl")
    path.write_text(LINE + "no JSON\n")
    assert corrupt(path, tmp_path / "b.jsonl") == 0
    (line,) = (tmp_path / "b.jsonl.quarantine.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["where"] == f"{path}:2:1"


def test_a_link_at_the_place_of_a_part_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for write in (written, written_bytes):
        (tmp_path / f".out.{os.getpid()}.part").symlink_to(victim)
        with write(tmp_path / "out") as file:
            file.write("x" if write is written else b"x")
        assert (victim.read_text(), (tmp_path / "out").read_text()) == ("mine", "x")
        assert not (tmp_path / "out").is_symlink()
