"""Run cells: those that are missing, several at a time, each in a process with one thread; what fails is kept."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from errornorm.training.stops import Stopped, at_once
from errornorm.training.together import rank, told

from . import methods, ranks, work
from .cells import Cell
from .store import Store

POLL = 0.2  # seconds
GO_ON = "; the cells that ran go on from their checkpoints at the next start"
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Grid:
    """How cells are run.

    Args:
        store: Where rows go.
        place: Where runs lie.
        method_file: A user's methods, which every process must know.
        jobs: Processes. With 1 the cells run in this one.
        tell: Called with a line for each cell that ends.
    """

    store: Store
    place: work.Place
    method_file: Path | None = None
    jobs: int = 1
    tell: Callable[[str], None] = lambda text: None


@dataclass
class Outcome:
    """What became of cells."""

    done: list[Cell] = field(default_factory=list)
    before: list[Cell] = field(default_factory=list)  # had rows already
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    elsewhere: list[Cell] = field(default_factory=list)  # another process has them at this moment


def run(cells: Sequence[Cell], grid: Grid) -> Outcome:
    """Do what is missing. A cell that failed before is tried again."""
    outcome = Outcome()
    todo: dict[str, Cell] = {}
    ranks.meet()
    missing = told([grid.store.find(cell) is None for cell in cells])
    for cell, is_missing in zip(cells, missing, strict=True):
        if is_missing:
            todo.setdefault(cell.hash, cell)
        else:
            outcome.before.append(cell)
    ends = _here(todo, grid) if grid.jobs == 1 or ranks.launched() else _processes(list(todo.values()), grid)
    for number, cell in enumerate(ends, 1):
        _note(cell, grid, outcome)
        grid.tell(f"{number} of {len(todo)}: {cell.name}: {_became(cell, outcome)}")
    return outcome


def _note(cell: Cell, grid: Grid, outcome: Outcome) -> None:
    if grid.store.find(cell) is not None:
        outcome.done.append(cell)
    elif failure := grid.store.failed(cell):
        outcome.failed.append((cell, f"{failure['error']}: {failure['text']}"))
    else:
        outcome.elsewhere.append(cell)


def _became(cell: Cell, outcome: Outcome) -> str:
    failed = next((text for other, text in outcome.failed if other is cell), None)
    return "done" if cell in outcome.done else failed or "another process has it"


def _here(todo: dict[str, Cell], grid: Grid) -> Iterator[Cell]:
    for cell in todo.values():
        try:
            with one_thread():
                one(cell, grid.store, grid.place)
        except Stopped as error:  # it speaks of a single run
            raise Stopped(error.signal, after=GO_ON) from None
        yield cell


def one(cell: Cell, store: Store, place: work.Place, method_file: Path | None = None) -> None:
    """Run a cell and write its row, or why there is none; nothing at all if another process is at it."""
    ranks.meet()
    lock, token = place.lock(cell), ranks.agreed_token()
    if not told(_free(lock)):
        return
    try:
        if told(store.find(cell) is not None):  # by another process, since the cells were looked at
            return
        failed = _done(cell, store, place, method_file)
    finally:
        lock.release()
    if failed and ranks.fell_out(place.folder(cell), token):
        raise RuntimeError(f"{cell.name} failed on some ranks only; start the command again for the others")


def _free(lock: FileLock) -> bool:
    """Of several ranks, the first one has the lock for all."""
    try:
        if rank() == 0:
            lock.acquire(timeout=0)
    except Timeout:
        return False
    return True


def _done(cell: Cell, store: Store, place: work.Place, method_file: Path | None) -> bool:
    """Run a cell; return whether it failed."""
    import torch

    main = rank() == 0
    try:
        if method_file is not None:
            methods.load(method_file)
        if main:
            store.failure(cell).unlink(missing_ok=True)
        told(None)  # no rank takes an old failure for one of now
        again = place.run(cell).manifest.is_file()
        began = time.monotonic()
        found = work.DOES[cell.do](cell, place)
        if main:
            # A run that was interrupted before has been at work for longer than this process knows.
            store.write(cell, found, None if again else time.monotonic() - began, torch.get_num_threads())
            return False
        return _await(cell, store)
    except Stopped:  # by the user, with a checkpoint: it goes on another time
        raise
    except Exception as error:
        if main or store.failed(cell) is None:
            store.write_failure(cell, type(error).__name__, str(error), traceback.format_exc())
        return True


def _await(cell: Cell, store: Store) -> bool:
    """The first rank measures and writes; what comes next may depend on its row. Whether it failed."""
    while store.find(cell) is None:
        if store.failed(cell) is not None:
            return True
        time.sleep(POLL)
    return False


def _processes(todo: list[Cell], grid: Grid) -> Iterator[Cell]:
    """A process for each cell: one that dies takes no other with it."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(reversed(todo)), dict[Any, Cell]()
    with _environment(), at_once(GO_ON):
        try:
            while waiting or running:
                while waiting and len(running) < grid.jobs:
                    cell = waiting.pop()
                    process = context.Process(target=_child, args=(cell, grid.store, grid.place, grid.method_file))
                    process.start()
                    running[process] = cell
                time.sleep(POLL)
                for process in [process for process in running if not process.is_alive()]:
                    cell = running.pop(process)
                    if process.exitcode:
                        text = f"the process ended with {process.exitcode}; is there enough memory?"
                        grid.store.write_failure(cell, "ProcessDied", text)
                    yield cell
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.join()


def _child(cell: Cell, store: Store, place: work.Place, method_file: Path | None) -> None:
    with one_thread(), suppress(Stopped):  # this process was asked to end, and has
        one(cell, store, place, method_file)


def one_thread() -> AbstractContextManager[None]:
    """So that results do not depend on how many cells run at a time. GPUs have their own."""
    import torch

    from errornorm.threads import on_threads

    return nullcontext() if torch.cuda.is_available() else on_threads(1)


@contextmanager
def _environment() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
