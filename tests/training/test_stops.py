"""Signals: remembered until the step is done, agreed on by all ranks, given back at the end."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from errornorm.training.stops import Stopped, Stops, at_once

INT, TERM = signal.SIGINT, signal.SIGTERM
HUP = getattr(signal, "SIGHUP", TERM)  # Windows has none


@pytest.fixture(autouse=True)
def handlers():
    outside = signal.signal(HUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
    before = {number: signal.getsignal(number) for number in (INT, TERM, HUP)}
    yield before
    for number, handler in before.items():
        assert signal.getsignal(number) is handler
        signal.signal(number, handler)
    signal.signal(HUP, outside)


def test_a_signal_that_a_library_caught_is_told_again():
    done = []

    def work():
        with at_once("; once more") as met:
            met()
            with pytest.raises(Stopped):
                signal.raise_signal(TERM)
            done.append("went on")
            met()
            done.append("and on")

    with pytest.raises(Stopped, match="stopped by SIGTERM; once more"):
        work()
    assert done == ["went on"]


@pytest.mark.parametrize(("number", "kind"), [(TERM, Stopped), (INT, KeyboardInterrupt)])
def test_another_error_that_a_library_makes_of_a_signal_is_none(number, kind):
    def draw():
        with at_once():
            try:
                signal.raise_signal(number)
            except kind:
                raise ValueError("invalid bounding box") from None

    with pytest.raises(kind):
        draw()


@pytest.mark.parametrize(("number", "kind"), [(TERM, Stopped), (INT, KeyboardInterrupt)])
def test_a_signal_in_a_destructor_is_not_printed_but_told(monkeypatch, number, kind):
    class Slow:
        def __del__(self):
            signal.raise_signal(number)

    class Wrong:
        def __del__(self):
            raise ValueError

    printed, done = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: printed.append(found.exc_type))

    def work():
        with at_once():
            del (slow := [Slow(), Wrong()])[:]
            done.append(slow)

    with pytest.raises(kind):
        work()
    assert (done, printed) == ([[]], [ValueError])


def test_the_innermost_has_its_words():
    def stopped(first):
        with at_once("; outside"):
            with at_once("; inside"):
                first and signal.raise_signal(TERM)
            signal.raise_signal(TERM)

    for first, words in ((True, "inside"), (False, "outside")):
        with pytest.raises(Stopped, match=f"stopped by SIGTERM; {words}"):
            stopped(first)


@pytest.mark.parametrize("number", [INT, TERM, HUP])
def test_the_first_signal_is_remembered(number):
    with Stops() as stops:
        assert (stops.asked, stops.signal, stops.due()) == (False, 0, False)
        signal.raise_signal(number)
        assert (stops.asked, stops.signal, stops.due()) == (True, number, True)


def test_the_second_ctrl_c_is_not_waited_for():
    with Stops() as stops:
        signal.raise_signal(INT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
        assert stops.signal == INT


def test_more_of_sigterm_changes_nothing_but_ctrl_c_does():
    with Stops() as stops:
        signal.raise_signal(TERM)
        signal.raise_signal(TERM)
        assert stops.signal == TERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)


def test_handlers_come_back_after_an_error(handlers):
    with pytest.raises(ZeroDivisionError), Stops():
        1 / (signal.getsignal(TERM) is handlers[TERM])
    assert signal.getsignal(TERM) is handlers[TERM]


def test_what_was_ignored_stays_ignored():
    before = signal.signal(INT, signal.SIG_IGN)
    try:
        with Stops() as stops:
            signal.raise_signal(INT)
            assert not stops.asked
    finally:
        signal.signal(INT, before)


def test_another_thread_installs_nothing(handlers):
    seen = []

    def work():
        with Stops() as stops:
            seen.append((signal.getsignal(INT), stops.due()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(handlers[INT], False)]


def test_the_user_is_told_once_and_a_broken_terminal_does_no_harm():
    told = []

    def tell(line):
        told.append(line)
        raise BrokenPipeError

    with Stops(tell=tell) as stops:
        signal.raise_signal(INT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
        assert stops.asked
    assert told == ["stopping after this step; Ctrl-C again: at once, without saving"]


def test_all_ranks_stop_after_the_same_step():
    """Three ranks as threads, one signal to one of them."""
    numbers, barrier = [0, 0, 0], threading.Barrier(3)
    ended = {}

    def rank(index):
        def agree(number):
            numbers[index] = number
            barrier.wait()
            largest = max(numbers)
            barrier.wait()
            return largest

        with Stops(agree) as stops:
            for step in range(10):
                if (index, step) == (1, 4):
                    stops._handle(TERM, None)
                if stops.due():
                    ended[index] = (step, stops.signal)
                    return

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert ended == {0: (4, TERM), 1: (4, TERM), 2: (4, TERM)}


def test_a_signal_while_the_ranks_agree_is_not_forgotten():
    def agree(number):
        if not number:
            signal.raise_signal(INT)
        return number

    with Stops(agree) as stops:
        assert not stops.due()
        assert stops.asked
        assert stops.due()


def test_the_same_ctrl_c_may_reach_this_rank_after_the_others():
    with Stops(lambda number: INT) as stops:
        assert stops.due()
        signal.raise_signal(INT)  # the first one here: the checkpoint is being saved
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)


def test_stopped_says_what_to_do():
    checkpoint = Path("run/checkpoints/step-00000120")
    error = Stopped(INT, 120, checkpoint)
    assert (error.signal, error.step, error.checkpoint, error.exit_code) == (INT, 120, checkpoint, 130)
    assert str(error) == f"stopped by Ctrl-C at step 120; checkpoint {checkpoint}; go on with --resume"
    assert Stopped(TERM, 3).exit_code == 143
    assert str(Stopped(TERM, 3)) == "stopped by SIGTERM at step 3; nothing was saved"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


LOOP = """
    import sys, time
    from errornorm.training.stops import Stopped, Stops

    try:
        with Stops(tell=lambda line: print(line, flush=True)) as stops:
            for step in range(10**6):
                print("step", flush=True)
                time.sleep(60 if sys.argv[1] == "long" else 0.01)
                if stops.due():
                    raise Stopped(stops.signal, step)
    except Stopped as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit("at once")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals between processes")
@pytest.mark.parametrize(("number", "code"), [(INT, 130), (TERM, 143)])
def test_a_process_ends_with_the_exit_code_of_the_signal(number, code):
    process = loop("short")
    process.send_signal(number)
    process.communicate(timeout=10)
    assert process.returncode == code


@pytest.mark.skipif(os.name != "posix", reason="signals between processes")
def test_a_process_in_a_long_step_ends_at_once_after_the_second_ctrl_c():
    process = loop("long")
    process.send_signal(INT)
    assert "Ctrl-C again" in process.stdout.readline()
    start = time.monotonic()
    process.send_signal(INT)
    assert process.communicate(timeout=10)[1].strip() == "at once"
    assert time.monotonic() - start < 5


def loop(kind):
    command = [sys.executable, "-c", textwrap.dedent(LOOP), kind]
    # In the background of a script Ctrl-C is ignored from the beginning.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(INT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout.readline() == "step\n"
    return process
