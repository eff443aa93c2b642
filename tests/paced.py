"""`errornorm`, by a clock: `python -m tests.paced BEGAN SECONDS train run.yaml`.

Each step of training, and each part of scores, waits for its time, so that a small model is busy for hours. What comes
late, because its process was away, comes at once.
"""

import re
import sys
import time

from errornorm.cli import main
from errornorm.scoring import run
from errornorm.training import engine


def keep_to(began, seconds):
    def wait(number):
        time.sleep(max(0.0, began + number * seconds - time.time()))

    step, write = engine.Journal.on_step_begin, run.write_part

    def on_step_begin(self, args, state, control, **rest):
        wait(state.global_step)
        step(self, args, state, control, **rest)

    def write_part(path, table):
        wait(int(re.search(r"\d+", path.name)[0]))
        write(path, table)

    engine.Journal.on_step_begin, run.write_part = on_step_begin, write_part


if __name__ == "__main__":
    began, seconds, *argv = sys.argv[1:]
    keep_to(float(began), float(seconds))
    sys.argv[1:] = argv
    sys.exit(main(argv))
