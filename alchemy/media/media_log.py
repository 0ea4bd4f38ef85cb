"""Encode media in a background thread and pass them to the record and to plugins."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from loguru import logger

from alchemy.records.media_entry import PICTURES, Encoded, MediaEntry, Moment, Sink

MAX_PENDING = 256 * 2**20  # bytes that wait for the thread; entries beyond that are dropped
OVERHEAD = 64 * 2**10  # counted for each entry, which bounds the number of small ones
PATIENCE_SECONDS = 10.0  # how long the end of a run waits for the thread


class _Waiting(NamedTuple):
    """An entry that the thread has yet to encode."""

    kind: str
    name: str
    moment: Moment
    encode: Callable[[], Encoded]
    size: int


class MediaLog:
    """A queue of entries and the thread that encodes them; errors become warnings and never reach the training loop.

    Without a sink, nothing is copied or encoded.
    """

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.dropped = 0
        self._queue: deque[_Waiting] = deque()
        self._pending = 0  # bytes of the entries that are queued or being written
        self._changed = threading.Condition()
        self._accepted = self._written = 0  # entries
        self._closing = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._warned: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether there is a sink; False in a forked worker, which has no writer thread."""
        return bool(self.sinks) and os.getpid() == self._pid

    def log(self, kind: str, name: str, moment: Moment, encode: Callable[[], Encoded], size: int) -> None:
        """Queue an entry of about `size` bytes; `encode` runs in the thread."""
        size += OVERHEAD
        with self._changed:
            if self._pending and self._pending + size > MAX_PENDING:
                self._drop(1, f"entries arrive faster than they can be written, such as the {kind} {name!r}")
                return
            self._queue.append(_Waiting(kind, name, moment, encode, size))
            self._accepted += 1
            self._pending += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alchemy-media", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def reject(self, kind: str, name: str, error: Exception) -> None:
        """Warn, once per name, that an entry cannot be logged."""
        self._warn(f"{kind} {name}", f"cannot log the {kind} {name!r}: {error}")

    def flush(self, timeout: float = PATIENCE_SECONDS) -> bool:
        """Wait until all sinks have received the entries queued so far; return False on timeout."""
        if self._thread is None or os.getpid() != self._pid:
            return True
        with self._changed:
            goal = self._accepted
            return self._changed.wait_for(lambda: self._written >= goal, timeout)

    def close(self) -> None:
        """Write the queued entries, end the thread and remove the sinks; entries that take too long are dropped."""
        if not self.flush():
            with self._changed:
                self._drop(self._accepted - self._written, "the disk does not respond")
                self._queue.clear()
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.sinks = []

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                waiting = self._queue.popleft()
            self._write(waiting)
            with self._changed:
                self._pending -= waiting.size
                self._written += 1
                self._changed.notify_all()

    def _write(self, waiting: _Waiting) -> None:
        kind, name, moment, encode, _ = waiting
        try:
            entry = MediaEntry(kind, name, moment, *encode())
        except Exception as error:  # wrong values, or a missing package
            self.reject(kind, name, error)
            return
        if kind in PICTURES and entry.info.get("nan"):
            self._warn(f"nan {name}", f"{entry.info['nan']} values of the {kind} {name!r} are not finite: drawn black")
        elif kind == "histogram" and "counts" not in entry.info:
            self._warn(f"nan {name}", f"no value of the histogram {name!r} is finite")
        for sink in self.sinks:
            try:
                sink(entry)
            except Exception as error:
                owner = type(getattr(sink, "__self__", sink)).__name__
                number = error.errno if isinstance(error, OSError) else None
                self._warn(f"{owner} {type(error)} {number}", f"{owner} cannot write the {kind} {name!r}: {error}")

    def _drop(self, entries: int, reason: str) -> None:
        self.dropped += entries
        self._warn(reason, f"dropped {entries} media: {reason}")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            logger.warning("{}; training continues", text)
