"""Processes that can be killed, and that need not wait for Python's imports."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

# Python needs seconds to import what a run needs: the server has done so, and its children are there at once.
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(
    ["errornorm.cli", "errornorm.training.run", "errornorm.training.dry", "sacrebleu", "matplotlib.figure",
     "matplotlib.backends.backend_agg", "transformers.models.marian.modeling_marian", "transformers.generation.utils",
     "errornorm.scoring.run", "errornorm.curation.prune"]
)  # fmt: skip
PYTHON = (sys.executable, "-m", "errornorm.cli")


class Process:
    """`errornorm`, as a forked process; or as one of its own, if `command` starts it.

    Args:
        argv: Its words.
        folder: A place for what it prints.
        prepare: What a forked process calls first: a function that can be pickled.
        command: Such as `PYTHON`: anew, as a user does. It takes seconds.
        environment: Additions to it.
        terminal: The name of one, instead of a file for stderr.
    """

    def __init__(self, argv, folder, *, prepare=None, command=None, environment=None, terminal=None):
        argv = [str(word) for word in argv]
        environment = {"OMP_NUM_THREADS": "1"} | (environment or {})
        self._files = [folder / f".{time.monotonic_ns()}.{name}" for name in ("out", "err")]
        self.began = time.monotonic()
        if command:
            out, err = (path.open("w") for path in self._files)
            self._process = subprocess.Popen([*command, *argv], stdout=out, stderr=err, env=os.environ | environment)
            out.close()
            err.close()
        else:
            args = (argv, str(self._files[0]), terminal or str(self._files[1]), environment, prepare)
            self._process = server.Process(target=_main, args=args, daemon=True)
            self._process.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def out(self):
        return self._text(0)

    @property
    def err(self):
        return self._text(1)

    def _text(self, number):
        path = self._files[number]
        return path.read_text() if path.exists() else ""

    @property
    def running(self):
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process.is_alive()

    def send(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """As a crash: no handler runs."""
        with suppress(ProcessLookupError):  # it ended by itself
            self.send(signal.SIGKILL)
        self.code()

    def until(self, happened):
        """Wait for something that can be seen from outside; False if the process ended before."""
        while not happened():
            if not self.running:
                return False
            time.sleep(0.003)
        return True

    def code(self, timeout=120):
        """Wait for the end."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.wait(timeout)
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running: {self.err}"
        return self._process.exitcode

    def done(self):
        """Wait for the end, which must be a good one."""
        assert self.code() == 0, self.err
        return self


def _main(argv, out, err, environment, prepare):
    """In the forked process. It ends without Python's own clean-up, as all of them do."""
    gc.freeze()  # what was imported stays, and stays shared
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(environment)
    import torch

    from errornorm.cli import main

    torch.set_num_threads(1)
    if prepare:
        prepare()
    sys.argv = ["errornorm", *argv]
    sys.exit(main(argv))


def after(seconds, function):
    """The function, but later."""

    def slow(*args, **kwargs):
        time.sleep(seconds)
        return function(*args, **kwargs)

    return slow


def two_ranks(function, folder):
    """What `function(rank, folder)` saves on each of two ranks, as `{rank}.pt`."""
    return _on_ranks(function, folder, 2)


def alone(function, folder):
    """The same of one process that begins anew, with the environment of this one."""
    return _on_ranks(function, folder, 1, method="spawn")


def on_ranks(function, folder, number):
    """What `function(rank, folder, number)` saves on each of so many ranks, as `{rank}.pt`."""
    return _on_ranks(function, folder, number, number)


def _on_ranks(function, folder, number, *args, method="forkserver"):
    import torch

    torch.multiprocessing.start_processes(function, (str(folder), *args), nprocs=number, start_method=method)
    return [torch.load(folder / f"{rank}.pt") for rank in range(number)]
