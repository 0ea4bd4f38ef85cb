"""Read the curves of a `metrics.jsonl` file, many lines at a time."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Mapping
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any

from alchemy.files import open_to_read, parse_json
from alchemy.index.curves import CLOCKS, MAX_METRICS, START, Curve, Curves, Mark
from alchemy.index.schema import is_storable
from alchemy.records.jsonl_writer import LONGEST

BLOCK = 2**18  # bytes
FEW_ROWS = 8  # with the same metrics; more are added as columns
Rows = list[dict[str, Any] | None]


def read_curves(path: Path, start: Mark = START) -> Curves:
    """Read all metrics of a file, or of its lines from a mark on, without damaged and superseded lines."""
    reader = _Reader(start)
    with open_to_read(path) as file:
        reader.read(file)
    return reader.finish()


class CurveFollower:
    """Reads the curves of a file that is still being written; each call of `read` reads only the new lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._reader, self._file = path, _Reader(START), (0, 0)

    def read(self) -> Curves:
        """Return the curves so far. They are extended by the next call. Raises OSError if there is no file."""
        with open_to_read(self._path) as file:
            found = os.fstat(file.fileno())
            identity = found.st_dev, found.st_ino
            if identity != self._file or found.st_size < self._reader.size:  # another file, or a shorter one
                self._reader, self._file = _Reader(START), identity
            self._reader.read(file)
        return self._reader.finish()


def parse_lines(block: bytes) -> Rows:
    """Parse complete lines of JSON; a line that is not an object becomes None.

    >>> parse_lines(b'{"update": 1}\\n[2]\\n{"upd\\n')
    [{'update': 1}, None, None]
    """
    try:  # all lines at once, which takes half the time
        rows = json.loads(b"[%b]" % block[:-1].replace(b"\n", b","))
    except (ValueError, RecursionError):
        rows = []
    if len(rows) != block.count(b"\n"):  # at least one line is damaged
        rows = [_parse_line(line) for line in block.split(b"\n")[:-1]]
    return [row if isinstance(row, dict) else None for row in rows]


def _metric_names(row: dict[str, Any] | None) -> tuple[str, ...]:
    values = None if row is None else row.get("values")
    return tuple(values) if isinstance(values, dict) else ()


def _parse_line(line: bytes) -> object:
    try:
        return parse_json(line)
    except ValueError:
        return None


def _split_blocks(file: BufferedReader) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of complete lines with their size in the file; the last line may still be being written.

    A line that is too long becomes an empty one.
    """
    rest, skipped = b"", 0
    while data := file.read(BLOCK):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if skipped and end:
            first = data.index(b"\n") + 1
            yield b"\n", skipped + first
            data, end, skipped = data[first:], end - first, 0
        if end:
            yield data[:end], end
        rest = data[end:]
        if len(rest) >= LONGEST or skipped:
            skipped, rest = skipped + len(rest), b""


class _Reader:
    def __init__(self, start: Mark) -> None:
        self._lines, self.size = start
        self._metrics: dict[str, Curve] = {}
        self._times, self._epochs = (Curve() for _ in CLOCKS)
        self._first_epoch: int | None = None
        self._epoch: int | None = None  # of the last row
        self._epoch_line = 0  # the last line that determines it
        self._marks = [start]
        self._resumed = False

    def read(self, file: BufferedReader) -> None:
        """Add the lines that have not been read yet."""
        file.seek(self.size)
        for block, size in _split_blocks(file):
            self.add(parse_lines(block), size)

    def add(self, rows: Rows, size: int) -> None:
        for _, group in groupby(rows, _metric_names):
            same = list(group)
            if len(same) < FEW_ROWS or not self._add_columns(same):
                for number, row in enumerate(same, self._lines + 1):
                    if row is not None:
                        self._add_row(number, row)
            self._lines += len(same)
        self.size += size
        self._marks.append(Mark(self._lines, self.size))

    def finish(self) -> Curves:
        found = {name: curve for name, curve in self._metrics.items() if len(curve)}
        clocks = dict(zip(CLOCKS, (self._times, self._epochs), strict=True))
        return Curves(found, clocks, self._lines, self.size, tuple(self._marks), self._epoch_line, self._resumed)

    def _add_columns(self, rows: Rows) -> bool:
        """Add rows with the same metrics and ordinary values; return False, and add nothing, for any other rows."""
        try:
            plain = [row for row in rows if row is not None and "event" not in row]
            updates, tables = [row["update"] for row in plain], [row["values"] for row in plain]
            epochs = [row["epoch"] for row in plain]
            times = array("d", [row["t"] for row in plain])
            if len(plain) != len(rows) or {*map(type, updates), *map(type, epochs)} != {int}:
                return False
            places = array("q", updates)
            columns = {name: array("d", [table[name] for table in tables]) for name in tables[0]}
        except (KeyError, TypeError, ValueError, OverflowError):
            return False
        lines = array("q", range(self._lines + 1, self._lines + 1 + len(rows)))
        for name, column in columns.items():
            if (curve := self._curve(name)) is not None:
                curve.extend(lines, places, column)
        if epochs != [self._epoch] * len(epochs):
            for place, epoch in enumerate(epochs):
                self._note_epoch(lines[place], epoch, updates[place - 1] if place else None)
        self._epoch_line = lines[-1]
        self._times.extend(lines, places, times)
        return True

    def _add_row(self, line: int, row: Mapping[str, Any]) -> None:
        if row.get("event") == "resume":
            if isinstance(row.get("from_line"), int):
                self._cut(row["from_line"])
                self._epoch_line = line
            return
        update, values = row.get("update"), row.get("values", {})
        if type(update) is not int or abs(update) >= 2**63 or not isinstance(values, dict):
            return
        for name, value in values.items():
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
            if (curve := self._curve(name)) is not None:
                curve.append(line, update, number)
        seconds = row.get("t")
        if not isinstance(seconds, int | float) or abs(seconds) > 1e15:
            seconds = self._times.values[-1] if len(self._times) else 0.0
        self._note_epoch(line, row.get("epoch"), None)
        self._times.append(line, update, seconds)

    def _curve(self, name: str) -> Curve | None:
        """Return the curve of a metric; None for a name that cannot be stored, or if there are too many."""
        if name not in self._metrics and len(self._metrics) < MAX_METRICS and is_storable(name):
            self._metrics[name] = Curve()
        return self._metrics.get(name)

    def _note_epoch(self, line: int, epoch: object, previous: int | None) -> None:
        """Add a point to the epochs if a row is the first of an epoch: the number of epochs completed before it."""
        if type(epoch) is not int or abs(epoch) >= 2**31:
            return
        self._epoch_line = line
        if self._epoch is None:
            self._first_epoch = epoch
        elif epoch != self._epoch:
            self._epochs.append(line, self._times.updates[-1] if previous is None else previous, self._epoch + 1)
        self._epoch = epoch

    def _cut(self, line: int) -> None:
        """Remove the points after a line, which a resumed run has repeated."""
        self._resumed = True
        for curve in (self._times, self._epochs, *self._metrics.values()):
            curve.cut(line)
        self._epoch = int(self._epochs.values[-1]) if len(self._epochs) else self._first_epoch
        if not len(self._times):
            self._epoch = None
