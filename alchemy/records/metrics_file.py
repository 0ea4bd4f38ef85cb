"""Write and read `metrics.jsonl`, the append-only log of a run's metrics."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from alchemy.records.jsonl_writer import JournaledMixin, JsonlWriter, read_lines, read_valid_lines

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
MACHINE_PREFIXES = ("time/", "system/")  # prefixes of metrics that differ between identical runs


class MetricsFile(JournaledMixin):
    """Appends rows of metrics; write errors are counted and never reach the training loop."""

    def __init__(self, path: Path, gen: int = 0) -> None:
        self.path = path
        self.gen = gen
        self.seconds = 0.0  # run time of earlier generations
        self.calling = 0.0  # seconds spent in `log`
        self._start = time.monotonic()
        self._journal: JsonlWriter = JsonlWriter(path)
        self.flush, self.sync, self.close = self._journal.flush, self._journal.sync, self._journal.close
        self.reopen = self._journal.reopen

    @property
    def lines(self) -> int:
        """The number of lines once all rows are written, including superseded ones."""
        return self._journal.lines

    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None:
        """Log a row, which the writer thread encodes."""
        begin = time.perf_counter()
        row = {
            "update": update,
            "step": step,
            "epoch": epoch,
            "t": round(time.monotonic() - self._start + self.seconds, 3),
            "gen": self.gen,
            "values": dict(values),  # a copy: the caller may change it later
        }
        self._journal.append_later(partial(_encode_row, row))
        self.calling += time.perf_counter() - begin

    def resume(self, gen: int, from_update: int, from_line: int, seconds: float = 0.0) -> None:
        """Continue as generation `gen`: supersede all lines after the first `from_line`."""
        self.gen, self.seconds = gen, seconds
        self._journal.append({"event": "resume", "gen": gen, "from_update": from_update, "from_line": from_line})


def read_metrics(path: str | Path, alive: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `metrics.jsonl` file; with `alive=False`, include rows superseded by a resumed run."""
    lines = read_valid_lines(path) if alive else read_lines(path)
    for _, row in lines:
        if row is not None and type(row.get("update")) is int and isinstance(row.get("values", {}), dict):
            yield row


def comparable(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of `iterate_comparable`."""
    return list(iterate_comparable(path))


def iterate_comparable(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the valid rows without time and system metrics, so that identical runs have equal rows."""
    for row in read_metrics(path):
        values = {name: value for name, value in row.get("values", {}).items() if not name.startswith(MACHINE_PREFIXES)}
        if values:
            yield {**{key: row.get(key) for key in ("update", "step", "epoch")}, "values": values}


def _encode_row(row: dict[str, Any]) -> bytes:
    """Encode a row as a line of JSON, with NaN and infinities as strings."""
    try:
        text = encode(row)
    except ValueError:  # NaN and infinities are rare, so only these rows pay for the search
        text = encode(row | {"values": {name: _encode_value(value) for name, value in row["values"].items()}})
    # lone surrogates in names become JSON escapes
    return f"{text}\n".encode(errors="backslashreplace")


def _encode_value(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
