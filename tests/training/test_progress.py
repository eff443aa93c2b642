"""What the user sees: plain lines in a file, a live bar on a terminal."""

import fcntl
import os
import re
import struct
import termios
import threading

import pytest

from errornorm.training import progress
from errornorm.training.progress import Progress, Quiet
from tests.training.runs import Train, write

NUMBERS = {"loss": 1.23456, "nll": 2.0, "kept": 0.9, "tokens_per_second": 12345.6, "learning_rate": 0.1}


def test_plain_lines_now_and_then(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    teller = Progress()
    with teller.steps(5000, 0) as tell:
        for now in range(1, 21):
            tell(now, {})
            tell(now, NUMBERS)
    assert capsys.readouterr().err.splitlines() == [
        "step 10 of 5000, loss 1.235, nll 2.000, kept 90.0%, 12,346 tokens/s, 1:23:10 left",
        "step 20 of 5000, loss 1.235, nll 2.000, kept 90.0%, 12,346 tokens/s, 1:23:00 left",
    ]


def test_the_last_step_is_told(capsys):
    teller = Progress()
    with teller.steps(12, 10) as tell:
        tell(11, NUMBERS)
        tell(12, {"loss": 0.5})
    with teller.steps(1, 0) as tell:  # of another run
        tell(1, {"loss": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "step 12 of 12, loss 0.500, nll 2.000, kept 90.0%, 12,346 tokens/s, 0:00 left",
        "step 1 of 1, loss 1.000, 0:00 left",
    ]


def test_numbers_that_are_missing(capsys):
    with Progress().steps(1, 0) as tell:
        tell(1, {"loss": None, "kept": 1.0})
    assert capsys.readouterr().err == "step 1 of 1, kept 100.0%, 0:00 left\n"


def test_titles(capsys):
    teller = Progress()
    with pytest.raises(ZeroDivisionError), teller.over("seed 3"), teller.doing("reading") as tell:
        tell(f"more {1 / 0}")
    teller.say("the end")
    assert capsys.readouterr().err == "seed 3: reading\nthe end\n"


def test_silence(capsys):
    teller = Quiet()
    with teller.over("seed 3"), teller.doing("reading") as tell, teller.steps(1, 0) as step:
        tell("more")
        step(1, NUMBERS)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("columns", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_a_live_bar(tmp_path, columns):
    config = write(tmp_path)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    seen = bytearray()

    def read():
        try:
            while chunk := os.read(ours, 4096):
                seen.extend(chunk)
        except OSError:  # nobody writes any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    run = Train(config, terminal=os.ttyname(theirs), pace=0.05,
                environment={"TERM": "xterm-256color", "COLUMNS": str(columns)})  # fmt: skip
    run.until(lambda: False)
    os.close(theirs)
    reader.join()
    os.close(ours)
    run.done()
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", bytes(seen)).decode()
    nll = r"nll [\d.]+, " if columns > 100 else ""
    bar = rf"training [━╸╺]+ +\d+/12 [\d:]+ loss [\d.]+, {nll}kept [\d.]+%, [\d,]+ tokens/s"
    assert len(re.findall(bar, plain)) > 3, plain
    assert "evaluating on test.jsonl" in plain
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= columns
    assert run.out.startswith("measure")  # the results are on stdout, which is a file
