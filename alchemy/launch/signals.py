"""Handle SIGINT, SIGTERM and SIGHUP: the first signal stops a run at its next step, the second immediately."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Raised on a second signal, or if a run cannot stop gracefully, for example while loading data."""

    def __init__(self, number: int) -> None:
        self.signal = number
        super().__init__(f"{signal.Signals(number).name} received")


def signal_number(error: KeyboardInterrupt) -> int:
    """Return the signal number of an interrupt; a plain KeyboardInterrupt is SIGINT."""
    return error.signal if isinstance(error, Interrupted) else int(signal.SIGINT)


@contextlib.contextmanager
def handle_signals(ask: Callable[[int], bool]) -> Iterator[None]:
    """Call `ask(signal)` on the first signal; raise `Interrupted` if it returns False, and on the second signal."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    owner, seen = os.getpid(), [False]

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            # a forked loader worker inherits this handler; it must exit with its parent, not on Ctrl-C
            if number != signal.SIGINT:
                os._exit(128 + number)
            return
        again, seen[0] = seen[0], True
        if again or not ask(number):
            raise Interrupted(number)

    # ignored signals stay ignored (nohup ignores SIGHUP), except Ctrl-C in a worker (see worker_pool.py)
    handled = [n for n in SIGNALS if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
