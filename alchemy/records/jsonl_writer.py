"""A file of JSON lines, appended to by a thread of its own, so that no disk can hold up a training."""

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

CAPACITY = 100_000  # rows that may wait for a disk which does not answer
FLUSH_SECONDS = 0.5  # how much of a run that is killed from outside may be missing
PATIENCE_SECONDS = 10.0  # how long the end of a run waits for the disk
LONGEST = 2**24  # bytes of a line; what is longer is no row

encode = json.JSONEncoder(ensure_ascii=False).encode


class JsonlWriter:
    """Appends rows. Trouble with the disk is counted and never raised; only a file that cannot be opened is an error.

    `append` puts a line into a list and returns; twice a second the thread writes what is there. What a disk refuses is
    tried again until the journal is closed, and while more than `capacity` rows wait, new ones are dropped.
    `lines` is the number of lines that the file has once all that was taken has been written.
    """

    def __init__(self, path: Path, *, capacity: int = CAPACITY) -> None:
        self.path, self.capacity = path, capacity
        self.dropped, self.error = 0, ""
        self.writing = 0.0  # CPU seconds of the thread
        self._pid = os.getpid()
        self._file = open_to_append(path)
        self.lines, cut = count_lines(path)
        if cut:  # a crash left half a line behind; it stays a line, which readers pass over
            os.write(self._file, b"\n")
        self._taken = self._written = self._rounds = 0
        self._waiting: list[Callable[[], bytes]] = []
        self._hurry = self._closing = False
        self._turn, self._using = threading.Condition(), threading.Lock()  # of the rows, of the file
        self._thread = threading.Thread(target=self._work, name=f"alchemy-{path.name}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def append(self, row: Mapping[str, Any]) -> bool:
        """Takes a row; whether it was taken. A forked loader worker, which has no thread, writes nothing."""
        try:
            text = encode(row)
        except (TypeError, ValueError) as error:
            return self._drop(str(error))
        return self.append_lines(text)

    def append_lines(self, *texts: str) -> bool:
        """Takes rows that are JSON already; all of them, or none."""
        try:
            lines = "".join(f"{text}\n" for text in texts).encode()
        except UnicodeEncodeError as error:
            return self._drop(str(error), len(texts))
        return self.append_later(lambda: lines, len(texts))

    def append_later(self, encoded: Callable[[], bytes], rows: int = 1) -> bool:
        """Takes rows that the thread encodes when it writes them; `encoded` returns whole lines, and never raises."""
        if os.getpid() != self._pid:
            return False
        with self._turn:
            if self._closing:
                return self._drop("it is closed", rows)
            if self._taken - self._written >= self.capacity:
                return self._drop("the disk does not keep up", rows)
            self._waiting.append(encoded)
            self._taken += rows
            self.lines += rows
        return True

    def flush(self, timeout: float = PATIENCE_SECONDS) -> bool:
        """Waits until all rows taken so far are handed to the system; False when that fails or takes too long."""
        if os.getpid() != self._pid:
            return False
        with self._turn:
            goal, rounds = self._taken, self._rounds + 2  # one under way may have begun before the last rows came
            while self._written < goal and self._rounds < rounds and self._thread.is_alive() and timeout > 0:
                self._hurry = True
                self._turn.notify_all()
                begin = time.monotonic()
                self._turn.wait(timeout)
                timeout -= time.monotonic() - begin
            return self._written >= goal

    def sync(self) -> bool:
        """Waits until all rows taken so far are on the disk; for a thread that saves a state which counts them."""
        if not self.flush():
            return False
        try:
            with self._using:
                os.fsync(self._file)
        except OSError as error:  # also: closed meanwhile, or no file that can be synced
            self.error = self.error or str(error)
            return False
        return True

    def reopen(self) -> None:
        """Recreates the file with its content if it was deleted."""
        with self._using:
            if not self._closing:
                self._file = reopen(self._file, self.path)

    def close(self) -> None:
        """Writes what can be written; what cannot is counted as dropped."""
        if os.getpid() != self._pid or self._closing:
            return
        atexit.unregister(self.close)
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self._thread.join(PATIENCE_SECONDS)
        lost = self._taken - self._written
        if lost:
            self.lines -= lost
            self.dropped += lost
            self.error = self.error or "the disk does not answer"
        if not self._thread.is_alive():
            with self._using:
                os.close(self._file)

    def _drop(self, error: str, rows: int = 1) -> bool:
        self.dropped += rows
        self.error = self.error or error
        return False

    def _work(self) -> None:
        rest, closing = b"", False
        while not closing:
            with self._turn:
                self._turn.wait_for(lambda: self._hurry or self._closing, FLUSH_SECONDS)
                self._hurry, closing = False, self._closing
                taken, rows, self._waiting = self._taken, self._waiting, []
            rest = self._write(rest, rows)
            with self._turn:
                self._written = taken - rest.count(b"\n")
                self._rounds += 1
                self._turn.notify_all()

    def _write(self, rest: bytes, rows: list[Callable[[], bytes]]) -> bytes:
        """Hands rows to the system; returns the bytes that it did not take."""
        begin = time.thread_time()
        data = b"".join([rest, *(encoded() for encoded in rows)])
        try:
            with self._using:
                while data:
                    data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = self.error or str(error)
        self.writing += time.thread_time() - begin
        return data


class Journalled:
    """What keeps its rows in a journal, and can say what was lost and what it has cost."""

    _journal: JsonlWriter | NoJsonlWriter
    calling = 0.0  # seconds taken from the loop

    @property
    def dropped(self) -> int:
        return self._journal.dropped

    @property
    def error(self) -> str:
        return self._journal.error

    @property
    def cost(self) -> dict[str, float]:
        """Seconds taken from the loop, and CPU seconds of the thread that writes."""
        return {"calling": self.calling, "writing": self._journal.writing}


def count_lines(path: str | Path) -> tuple[int, bool]:
    """How many lines a file has, and whether the last one is cut off; the half line counts."""
    lines, last = 0, b"\n"
    if not stat.S_ISREG(os.stat(path).st_mode):  # a device: reading it may never end
        return 0, False
    with open(path, "rb") as file:
        while block := file.read(2**20):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n"), last != b"\n"


def read_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """`(number of the line from 1, row)`; None for a line that is no row: cut off by a crash, or damaged.

    A last line without its end is not there yet, and is passed over.
    """
    with open_to_read(path) as file:
        number, begun = 1, False  # whether the line has begun before what is read now
        while part := file.readline(LONGEST):
            if part.endswith(b"\n"):
                row = None
                with contextlib.suppress(ValueError):  # also: bytes that are no text
                    row = None if begun else parse_json(part)
                yield number, row if isinstance(row, dict) else None
                number, begun = number + 1, False
            else:
                begun = True


def drop_superseded(lines: Iterator[tuple[int, dict[str, Any] | None]]) -> list[tuple[int, dict[str, Any] | None]]:
    """The lines that count: a resume says how many lines before it are kept, and the others are dead.

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


class NoJsonlWriter:
    """What the processes have that do not write."""

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
