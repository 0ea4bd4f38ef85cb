"""`metrics.jsonl`: the numbers of a run, one row a time they are logged, only ever appended to."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

FLUSH_SECONDS = 1.0


class Series:
    """Appends rows; trouble with the disk is counted and told once, and never reaches the training loop."""

    def __init__(self, path: Path, gen: int = 0) -> None:
        self.path = path
        self.gen = gen
        self.dropped = 0
        self.error = ""
        self._start = time.time()
        self._flushed = time.monotonic()
        self._file: TextIO | None = open(path, "a", encoding="utf-8")  # noqa: SIM115 closed by `close`

    def log(self, values: Mapping[str, float], *, update: int, step: int, epoch: int) -> None:
        """One row. NaN and infinities are kept, as strings, so that every line is JSON."""
        row = {
            "update": update,
            "step": step,
            "epoch": epoch,
            "t": round(time.time() - self._start, 3),
            "gen": self.gen,
            "values": {name: _number(value) for name, value in values.items()},
        }
        try:
            if self._file is None:
                raise OSError("closed")
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._file.flush()
                self._flushed = time.monotonic()
        except (OSError, ValueError) as error:
            self.dropped += 1
            self.error = self.error or str(error)

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self.error = self.error or str(error)
        self._file = None


def read_series(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; a last line cut off by a crash is passed over."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def _number(value: Any) -> Any:
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else str(number)
