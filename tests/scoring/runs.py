"""`errornorm score` in processes that can be killed."""

import time
from functools import partial

from tests.processes import PYTHON, Process


class Score(Process):
    """The pairs and the model of a folder, in parts of seven.

    Args:
        folder: Where both are.
        output: The folder of scores.
        real: Start Python anew, as a user does. It takes seconds.
        pace: Sleep so many seconds before and after a part is written, for those who watch.
    """

    def __init__(self, folder, output, *, real=False, pace=0.0):
        argv = ["score", folder / "pairs.jsonl", "--model", folder / "marian", "-o", output, "--part", "7"]
        super().__init__(argv, output.parent, prepare=partial(_prepare, pace), command=PYTHON if real else None)


def _prepare(pace):
    from errornorm.scoring import run

    write = run.write_part

    def slow(path, table):
        time.sleep(pace)
        write(path, table)
        time.sleep(pace)

    run.write_part = slow
