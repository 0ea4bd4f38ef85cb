"""Read JSON Lines files, and append to them in a background thread so that a slow disk never blocks training."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from alchemy.files import open_to_append, open_to_read, parse_json, reopen

CAPACITY = 100_000  # maximum number of rows queued while the disk does not respond
FLUSH_SECONDS = 0.5  # a killed process loses at most the rows of this interval
PATIENCE_SECONDS = 10.0  # how long closing waits for the disk
LONGEST = 2**24  # maximum bytes per line; a longer line is not a row

encode = json.JSONEncoder(ensure_ascii=False).encode


class JsonlWriter:
    """Appends rows to a file. Write errors are counted, not raised; only failing to open the file raises an error.

    `append` adds a line to a queue and returns; a thread writes the queue twice a second. Failed writes are retried
    until the writer is closed. While more than `capacity` rows are queued, new rows are dropped. `lines` is the number
    of lines in the file once all queued rows are written.
    """

    def __init__(self, path: Path, *, capacity: int = CAPACITY) -> None:
        self.path, self.capacity = path, capacity
        self.dropped, self.error = 0, ""
        self.writing = 0.0  # CPU seconds of the thread
        self._pid = os.getpid()
        self._file = open_to_append(path)
        self.lines, cut = count_lines(path)
        if cut:  # a crash left an incomplete line: terminate it, so that readers skip it
            os.write(self._file, b"\n")
        self._accepted = self._written = self._rounds = 0
        self._queue: list[Callable[[], bytes]] = []
        self._flush_now = self._closing = False
        self._changed, self._file_lock = threading.Condition(), threading.Lock()  # guard the queue and the file
        self._thread = threading.Thread(target=self._run, name=f"alchemy-{path.name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def append(self, row: Mapping[str, Any]) -> bool:
        """Queue a row; return whether it was accepted. Does nothing in a forked worker, which has no writer thread."""
        try:
            text = encode(row)
        except (TypeError, ValueError) as error:
            return self._drop(str(error))
        return self.append_lines(text)

    def append_lines(self, *texts: str) -> bool:
        """Queue rows that are already encoded as JSON, either all of them or none."""
        try:
            lines = "".join(f"{text}\n" for text in texts).encode()
        except UnicodeEncodeError as error:
            return self._drop(str(error), len(texts))
        return self.append_later(lambda: lines, len(texts))

    def append_later(self, encoded: Callable[[], bytes], rows: int = 1) -> bool:
        """Queue rows that the thread encodes when it writes them; `encoded` returns complete lines and never raises."""
        if os.getpid() != self._pid:
            return False
        with self._changed:
            if self._closing:
                return self._drop("the file is closed", rows)
            if self._accepted - self._written >= self.capacity:
                return self._drop("the disk is too slow", rows)
            self._queue.append(encoded)
            self._accepted += rows
            self.lines += rows
        return True

    def flush(self, timeout: float = PATIENCE_SECONDS) -> bool:
        """Wait until all queued rows have been passed to the operating system; return False on failure or timeout."""
        if os.getpid() != self._pid:
            return False
        with self._changed:
            goal, rounds = self._accepted, self._rounds + 2  # the current round may have started before the last rows
            while self._written < goal and self._rounds < rounds and self._thread.is_alive() and timeout > 0:
                self._flush_now = True
                self._changed.notify_all()
                begin = time.monotonic()
                self._changed.wait(timeout)
                timeout -= time.monotonic() - begin
            return self._written >= goal

    def sync(self) -> bool:
        """Wait until all queued rows are on disk; return False on failure."""
        if not self.flush():
            return False
        try:
            with self._file_lock:
                os.fsync(self._file)
        except OSError as error:  # also raised if the file was closed meanwhile or cannot be synced
            self.error = self.error or str(error)
            return False
        return True

    def reopen(self) -> None:
        """Recreate the file and its contents if it was deleted."""
        with self._file_lock:
            if not self._closing:
                self._file = reopen(self._file, self.path)

    def close(self) -> None:
        """Write the queued rows and close the file; count unwritten rows as dropped."""
        if os.getpid() != self._pid or self._closing:
            return
        atexit.unregister(self.close)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(PATIENCE_SECONDS)
        lost = self._accepted - self._written
        if lost:
            self.lines -= lost
            self.dropped += lost
            self.error = self.error or "the disk does not respond"
        if not self._thread.is_alive():
            with self._file_lock:
                os.close(self._file)

    def _drop(self, error: str, rows: int = 1) -> bool:
        self.dropped += rows
        self.error = self.error or error
        return False

    def _run(self) -> None:
        rest, closing = b"", False
        while not closing:
            with self._changed:
                self._changed.wait_for(lambda: self._flush_now or self._closing, FLUSH_SECONDS)
                self._flush_now, closing = False, self._closing
                taken, rows, self._queue = self._accepted, self._queue, []
            rest = self._write(rest, rows)
            with self._changed:
                self._written = taken - rest.count(b"\n")
                self._rounds += 1
                self._changed.notify_all()

    def _write(self, rest: bytes, rows: list[Callable[[], bytes]]) -> bytes:
        """Write rows to the file; return the bytes that could not be written."""
        begin = time.thread_time()
        data = b"".join([rest, *(encoded() for encoded in rows)])
        try:
            with self._file_lock:
                while data:
                    data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = self.error or str(error)
        self.writing += time.thread_time() - begin
        return data


class JournaledMixin:
    """A mixin for classes that write rows with a `JsonlWriter`: reports dropped rows, errors and cost."""

    _journal: JsonlWriter | NoJsonlWriter
    calling = 0.0  # seconds spent in the training loop

    @property
    def dropped(self) -> int:
        return self._journal.dropped

    @property
    def error(self) -> str:
        return self._journal.error

    @property
    def cost(self) -> dict[str, float]:
        """Seconds spent in the training loop, and CPU seconds of the writer thread."""
        return {"calling": self.calling, "writing": self._journal.writing}


def count_lines(path: str | Path) -> tuple[int, bool]:
    """Return the number of lines in a file, including an incomplete last line, and whether there is one."""
    lines, last = 0, b"\n"
    if not stat.S_ISREG(os.stat(path).st_mode):  # reading a device may never end
        return 0, False
    with open(path, "rb") as file:
        while block := file.read(2**20):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n"), last != b"\n"


def read_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield `(line number from 1, row)`; the row is None for a line that is truncated or damaged.

    A last line without a newline is still being written, and is skipped.
    """
    with open_to_read(path) as file:
        number, begun = 1, False  # `begun`: whether this part continues a line
        while part := file.readline(LONGEST):
            if part.endswith(b"\n"):
                row = None
                with contextlib.suppress(ValueError):  # also for bytes that are not UTF-8
                    row = None if begun else parse_json(part)
                yield number, row if isinstance(row, dict) else None
                number, begun = number + 1, False
            else:
                begun = True


def drop_superseded(lines: Iterator[tuple[int, dict[str, Any] | None]]) -> list[tuple[int, dict[str, Any] | None]]:
    """Return the valid lines. A resume event specifies how many earlier lines to keep and supersedes the rest.

    >>> event = {"event": "resume", "gen": 1, "from_update": 1, "from_line": 1}
    >>> drop_superseded(iter([(1, {"update": 1}), (2, {"update": 2}), (3, None), (4, event), (5, {"update": 2})]))
    [(1, {'update': 1}), (5, {'update': 2})]
    """
    kept: list[tuple[int, dict[str, Any] | None]] = []
    for number, row in lines:
        if row is None or row.get("event") != "resume":
            kept.append((number, row))
        else:
            line = row.get("from_line")
            while kept and isinstance(line, int) and kept[-1][0] > line:
                kept.pop()
    return kept


def read_valid_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the lines that no resumed run has superseded; the lines of a run that was never resumed are read lazily."""
    with open_to_read(path) as file:
        resumed = any(b'"resume"' in line for line in file)
    yield from drop_superseded(read_lines(path)) if resumed else read_lines(path)


class NoJsonlWriter:
    """The null object for processes that do not write."""

    lines = dropped = 0
    writing, error = 0.0, ""

    def append(self, row: Mapping[str, Any]) -> bool:
        return False

    def append_lines(self, *texts: str) -> bool:
        return False

    def flush(self) -> bool:
        return True

    def sync(self) -> bool:
        return True

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        pass
