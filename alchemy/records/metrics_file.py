"""`metrics.jsonl`: the numbers of a run, one row a time they are logged, only ever appended to."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alchemy.records.jsonl_writer import Journalled, JsonlWriter, drop_superseded, read_lines

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
OF_THE_MACHINE = ("time/", "system/")  # names of values that differ between two equal runs


class MetricsFile(Journalled):
    """Appends rows; trouble with the disk is counted and told once, and never reaches the training loop."""

    def __init__(self, path: Path, gen: int = 0) -> None:
        self.path = path
        self.gen = gen
        self.seconds = 0.0  # of the generations before this one
        self.calling = 0.0  # seconds that `log` has taken from the loop
        self._start = time.monotonic()
        self._journal: JsonlWriter = JsonlWriter(path)
        self.flush, self.sync, self.close = self._journal.flush, self._journal.sync, self._journal.close
        self.reopen = self._journal.reopen

    @property
    def lines(self) -> int:
        """Lines of the file, dead ones too, once all that was logged is written."""
        return self._journal.lines

    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None:
        """One row, which the thread that writes encodes."""
        begin = time.perf_counter()
        row = {
            "update": update,
            "step": step,
            "epoch": epoch,
            "t": round(time.monotonic() - self._start + self.seconds, 3),
            "gen": self.gen,
            "values": dict(values),  # a copy: others are given the same numbers, and may change them
        }
        self._journal.append_later(partial(_line, row))
        self.calling += time.perf_counter() - begin

    def resume(self, gen: int, from_update: int, from_line: int, seconds: float = 0.0) -> None:
        """Goes on as generation `gen`: of the lines so far only the first `from_line` count any more."""
        self.gen, self.seconds = gen, seconds
        self._journal.append({"event": "resume", "gen": gen, "from_update": from_update, "from_line": from_line})


def read_metrics(path: str | Path, alive: bool = True) -> Iterator[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; those that a resume has made void only on request."""
    lines = drop_superseded(read_lines(path)) if alive else read_lines(path)
    for _, row in lines:
        if row is not None and type(row.get("update")) is int and isinstance(row.get("values", {}), dict):
            yield row


def comparable(path: str | Path) -> list[dict[str, Any]]:
    """The rows that count, without what the clock and the machine put in: two equal runs have equal ones."""
    found = []
    for row in read_metrics(path):
        values = {name: value for name, value in row["values"].items() if not name.startswith(OF_THE_MACHINE)}
        if values:
            found.append({**{key: row[key] for key in ("update", "step", "epoch")}, "values": values})
    return found


def _line(row: dict[str, Any]) -> bytes:
    """A row as a line of JSON; NaN and infinities are kept as strings."""
    try:
        text = encode(row)
    except ValueError:  # rare, so that no other row pays for the search
        text = encode(row | {"values": {name: _finite(value) for name, value in row["values"].items()}})
    # half a character in a name: what replaces it is its escape in JSON
    return f"{text}\n".encode(errors="backslashreplace")


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
