"""What the ranks of a launch agree on, cell by cell. With one process these are no-ops."""

from __future__ import annotations

import atexit
import os
import time
from contextlib import ExitStack
from pathlib import Path

from errornorm.training.together import met, rank, told

GRACE = 60.0  # seconds within which all ranks must have left a cell that failed
POLL = 0.2
_group = ExitStack()  # of the whole process: a process group cannot be made a second time


def launched() -> bool:
    """Whether a launcher started several processes."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def meet() -> None:
    """From here on, until the process ends, the ranks can talk."""
    import torch.distributed as dist

    if launched() and not dist.is_initialized():
        _group.enter_context(met())
        atexit.register(_group.close)


def agreed_token() -> str:
    """The same on every rank, and another one each time."""
    return told(str(time.time_ns()))


def fell_out(folder: Path, token: str) -> bool:
    """After a failure: whether some rank is still at work on the cell, so that no other one can be begun together."""
    if not launched():
        return False
    world = range(int(os.environ["WORLD_SIZE"]))
    places = [folder / f".failed-{number}" for number in world]
    places[rank()].write_text(token, encoding="utf-8")
    until = time.monotonic() + GRACE
    while not all(place.is_file() and place.read_text(encoding="utf-8") == token for place in places):
        if time.monotonic() > until:
            atexit.unregister(_group.close)  # it would wait for the others
            return True
        time.sleep(POLL)
    return False
