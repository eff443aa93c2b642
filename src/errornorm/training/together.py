"""What the ranks of a run do together. With one process these are no-ops."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from . import checkpoints
from .disk import room_for
from .rundir import RunDir

T = TypeVar("T")
WAIT = timedelta(days=1)  # the others wait while the first rank tokenizes, which takes hours for a large corpus


def rank() -> int:
    """Of this process, also before the ranks have met."""
    return dist.get_rank() if _met() else int(os.environ.get("RANK", 0))


def on_cpu() -> bool:
    """Whether there is no accelerator that training could use."""
    return not torch.cuda.is_available() and not torch.backends.mps.is_available()


@contextmanager
def met() -> Iterator[None]:
    """Inside, the ranks can talk, if the launcher started several."""
    if _met() or int(os.environ.get("WORLD_SIZE", 1)) < 2:
        yield
        return
    from accelerate import PartialState

    PartialState(cpu=on_cpu(), timeout=WAIT)  # cpu: else it would not choose gloo
    yield  # not in a finally: after an error the others may be waiting elsewhere
    dist.destroy_process_group()


@contextmanager
def together() -> Iterator[None]:
    """If one rank fails in here, all of them do: none waits for it in vain.

    Inside, ranks must not wait for each other, unless in a `together` of its own.
    """
    mine: Exception | None = None
    try:
        yield
    except Exception as error:
        mine = error
    if _several():
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, _sendable(mine))
        mine = mine or next((error for error in found if error is not None), None)
    if mine is not None:
        raise mine


def told(value: T) -> T:
    """What the first rank says, on every rank."""
    box = [value]
    if _several():
        dist.broadcast_object_list(box, src=0)
    return box[0]


def largest(number: int) -> int:
    """Of the numbers of all ranks."""
    if not _several():
        return number
    box = torch.tensor(number, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(box, op=dist.ReduceOp.MAX)
    return int(box)


@contextmanager
def staged(run: RunDir, final: Path) -> Iterator[Path]:
    """A stage that all ranks may write into; it becomes `final` when all have."""
    with ExitStack() as stack:
        with together(), room_for(run.path):
            mine = stack.enter_context(checkpoints.staging(final)) if run.main else None
        stage = told(mine)
        assert stage is not None
        with together(), room_for(run.path):
            yield stage
        with together(), room_for(run.path):
            stack.close()


def _met() -> bool:
    return dist.is_available() and dist.is_initialized()


def _several() -> bool:
    return _met() and dist.get_world_size() > 1


def _sendable(error: Exception | None) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
