"""Small commands for entries, and a worker that runs until nothing is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from alchemy.queue import Entry, Event, NewEntry, Queue, Slots, Worker


def python(code: str, *words: str) -> tuple[str, ...]:
    """Return a command that runs a line of Python, as fast as Python starts."""
    return (sys.executable, "-I", "-S", "-c", code, *words)


def add(queue: Queue, *codes: str, **fields) -> list[Entry]:
    return queue.add([NewEntry(argv=python(code), **fields) for code in codes])


def work(queue: Queue, slots: int | Slots = 1, seconds: float = 20.0, **options) -> list[Event]:
    """Run a worker until nothing is left that it could do; return what it reported."""
    events: list[Event] = []
    slots = Slots(slots) if isinstance(slots, int) else slots
    with Worker(queue, slots, on_event=events.append, **options) as worker:
        deadline = time.monotonic() + seconds
        while worker.list_remaining():
            assert time.monotonic() < deadline, [entry.state for entry in worker.list_remaining()]
            worker.step(0.05)
    return events


def states(queue: Queue) -> list[str]:
    return [entry.state for entry in queue.list()]


def wait_until(true: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
