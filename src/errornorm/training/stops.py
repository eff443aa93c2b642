"""Ctrl-C, SIGTERM and SIGHUP: the step goes on to its end, a checkpoint is saved, and then the run stops."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
SIGNALS = (signal.SIGINT, *ENDS)


class Stopped(Exception):  # noqa: N818 (it is no failure)
    """A run that stopped because it was asked to.

    Args:
        signal: The number of the signal that asked.
        step: The last step that was done.
        checkpoint: Where it was saved. None: it was not.
        after: Instead of the two: what to say about where it stopped.
    """

    def __init__(self, signal: int, step: int = 0, checkpoint: Path | None = None, after: str | None = None) -> None:
        super().__init__(signal, step, checkpoint, after)  # as they are, so that it can go from process to process
        self.signal, self.step, self.checkpoint, self.after = signal, step, checkpoint, after

    @property
    def exit_code(self) -> int:
        """As a shell has it: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return 128 + self.signal

    def __str__(self) -> str:
        by = "Ctrl-C" if self.signal == signal.SIGINT else signal.Signals(self.signal).name
        if self.after is not None:
            return f"stopped by {by}{self.after}"
        if self.checkpoint is None and not self.step:
            return f"stopped by {by} before the first step; go on with --resume"
        if self.checkpoint is None:
            return f"stopped by {by} at step {self.step}; nothing was saved"
        return f"stopped by {by} at step {self.step}; checkpoint {self.checkpoint}; go on with --resume"


@contextmanager
def at_once(after: str | None = None) -> Iterator[Callable[[], None]]:
    """Inside, SIGTERM and SIGHUP end the run where it is, as Ctrl-C does anyway: there is nothing to save.

    Yields what ends it a second time, to be called now and then: a library may have caught the first, or made another
    error of it. One inside another has its own words.

    Args:
        after: What to say about it; by default, that it was before the first step.
    """
    handle = _AtOnce(after)
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS if here}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    ours = {number: old for number, old in before.items() if old in usual or isinstance(old, _AtOnce)}
    for number in ours:
        signal.signal(number, handle)
    ignored, sys.unraisablehook = sys.unraisablehook, lambda found: handle.catch(found) or ignored(found)
    try:
        yield handle.again
    except Exception:
        handle.again()
        raise
    finally:
        sys.unraisablehook = ignored
        for number, old in ours.items():
            signal.signal(number, old)
    handle.again()


class _AtOnce:
    def __init__(self, after: str | None) -> None:
        self._after, self._got = after, 0

    def again(self) -> None:
        if self._got == signal.SIGINT:  # no Exception: few libraries catch it
            raise KeyboardInterrupt
        if self._got:
            raise Stopped(self._got, after=self._after)

    def catch(self, found: Any) -> bool:
        """Whether Python would only print it: it came in a destructor."""
        return self._got != 0 and isinstance(found.exc_value, KeyboardInterrupt | Stopped)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._got = number
        self.again()


class Stops:
    """Remembers the first signal, so that the training loop can stop between two steps.

    A second Ctrl-C raises KeyboardInterrupt at once. More of the others change nothing: launchers send several.
    Outside the main thread no signal can be caught, and nothing is. A signal that was ignored before stays ignored:
    so shells protect what runs in the background.

    Args:
        agree: With several ranks, the largest of their numbers, on each of them: a signal reaches the ranks at
            different times, or only one of them, but all have to stop after the same step. See `due`.
        tell: Is called with a line for the user, as soon as the first signal arrives.

    Example:
        >>> with Stops() as stops:
        ...     for step in range(3):
        ...         signal.raise_signal(signal.SIGTERM) if step == 1 else None
        ...         if stops.due():
        ...             print(Stopped(stops.signal, step))
        ...             break
        stopped by SIGTERM at step 1; nothing was saved
    """

    def __init__(self, agree: Callable[[int], int] | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._agree, self._tell = agree, tell
        self._before: dict[signal.Signals, Any] = {}
        self._got = False
        self.signal = 0
        """The first signal; 0: none yet."""

    @property
    def asked(self) -> bool:
        """Whether this process knows of a signal. See `due` for all ranks."""
        return self.signal != 0

    def due(self) -> bool:
        """Whether to stop now. Every rank has to call it after every step: they wait for each other in it."""
        if self._agree is None:
            return self.asked
        agreed = self._agree(self.signal)
        if agreed:  # else a signal may have come meanwhile: not to be forgotten
            self.signal = agreed
        return agreed != 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None: a handler that was not set by Python, and that it cannot set.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Not `asked`: another rank may have told of this very Ctrl-C before it came here.
        if self._got:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self._got = True
        self.signal = self.signal or number
        if self._tell is not None:
            again = "; Ctrl-C again: at once, without saving" if number == signal.SIGINT else ""
            with suppress(Exception):  # the signal may have come in the middle of another line
                self._tell(f"stopping after this step{again}")
