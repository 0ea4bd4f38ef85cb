"""Ctrl-C, SIGTERM, a closed terminal: the first asks a run to end at the next step, the second leaves at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A run was told to leave where it cannot end by itself (while it loads data, say), or was told twice."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(f"{signal.Signals(number).name} received")


def signal_number(error: KeyboardInterrupt) -> int:
    """The signal behind an interrupt; Python's own is Ctrl-C."""
    return error.signal if isinstance(error, Interrupted) else int(signal.SIGINT)


@contextlib.contextmanager
def handle_signals(ask: Callable[[int], bool]) -> Iterator[None]:
    """Calls `ask(signal)` at the first signal; when it answers False, or at the second, `Interrupted` is raised."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change handlers; a run in another thread is stopped by its owner
        return
    owner, seen = os.getpid(), [False]

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            # a forked loader worker inherits this handler: it ends with its parent, not by the terminal's signal
            if number != signal.SIGINT:
                os._exit(128 + number)
            return
        again, seen[0] = seen[0], True
        if again or not ask(number):
            raise Interrupted(number)

    # nohup and the like have SIGHUP ignored: what is ignored stays so, but Ctrl-C in a worker, see workers.py
    heard = [n for n in SIGNALS if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
