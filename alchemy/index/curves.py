"""The curves of metrics: read from `metrics.jsonl`, and stored in the index at several levels of detail.

A level splits a curve into buckets of equal size and keeps the first and last update, the mean and the extremes of each
bucket. A plot reads the finest level that has at most `MAX_BUCKETS` buckets, whatever the length of the run. Short
curves are stored only if their file is large: reading a small file is as fast.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from alchemy.files import open_to_read

MAX_BUCKETS = 2000
FIRST_LEVEL, FACTOR = 16, 4  # points per bucket of the finest stored level; growth from level to level
LONGEST_LINE = 2**20
LARGE_FILE = 2 * 2**20  # bytes from which all curves are stored
MAX_METRICS = 2_000  # per record: one hostile record must not fill the index
CLOCKS = ("time", "epoch")


class Curve:
    """The values of one metric: `lines[i]` of the file has value `values[i]` at update `updates[i]`."""

    __slots__ = ("lines", "updates", "values")

    def __init__(self) -> None:
        self.lines, self.updates, self.values = array("q"), array("q"), array("d")

    def __len__(self) -> int:
        return len(self.values)

    def cut(self, line: int) -> None:
        """Remove the points after a line of the file, which a resumed run has repeated."""
        keep = bisect_right(self.lines, line)
        del self.lines[keep:], self.updates[keep:], self.values[keep:]


class Curves(NamedTuple):
    """All metrics of a file, the number of its complete lines and bytes, and the last update and run time.

    `clocks` contains the run time in seconds and the number of epochs completed, by update.
    """

    metrics: dict[str, Curve]
    lines: int
    size: int
    updates: int
    seconds: float
    clocks: dict[str, Curve] = {}


class Bucket(NamedTuple):
    """Consecutive points of a curve; NaN and infinities count as missing in `mean`, `low` and `high`."""

    first: float
    last: float
    mean: float
    low: float
    high: float


def read_curves(path: Path, largest: int | None = None) -> Curves:
    """Read all metrics of a `metrics.jsonl` file; damaged lines are skipped, and so are superseded ones.

    `largest` limits the number of bytes to read.
    """
    metrics: dict[str, Curve] = {}
    times, epochs = Curve(), Curve()
    number, size, updates, seconds = 0, 0, 0, 0.0
    decode = json.JSONDecoder().raw_decode  # half the time of `json.loads`, which also detects the encoding
    with open_to_read(path) as file:
        for line in _complete_lines(file, largest):
            number += 1
            size += len(line)
            try:
                text = line.decode("utf-8").strip() if len(line) < LONGEST_LINE else ""
                row, end = decode(text)
                if end < len(text):
                    continue
                if "event" in row:
                    if row["event"] == "resume" and type(row["from_line"]) is int:
                        for old in (times, epochs, *metrics.values()):
                            old.cut(row["from_line"])
                    continue
                update, values, elapsed = row["update"], row["values"], row.get("t", 0.0)
                if type(update) is not int or type(values) is not dict:
                    continue
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            for name, value in values.items():
                if type(value) is not float:
                    try:
                        value = float(value)
                    except (TypeError, ValueError, OverflowError):
                        continue
                curve = metrics.get(name)
                if curve is None:
                    curve = metrics[name] = Curve()
                try:
                    curve.updates.append(update)
                except OverflowError:
                    continue
                curve.lines.append(number)
                curve.values.append(value)
            updates = update
            if type(elapsed) is float or type(elapsed) is int:
                seconds = float(elapsed)
            _add_to_clocks(times, epochs, number, update, seconds, row.get("epoch"))
    found = {name: curve for name, curve in metrics.items() if len(curve)}
    return Curves(found, number, size, updates, seconds, {"time": times, "epoch": _count_epochs(epochs)})


def _add_to_clocks(times: Curve, epochs: Curve, line: int, update: int, seconds: float, epoch: object) -> None:
    if not abs(update) < 2**62:
        return
    times.lines.append(line)
    times.updates.append(update)
    times.values.append(seconds)
    if type(epoch) is not int or not abs(epoch) < 2**31:
        return
    if not epochs.values or epochs.values[-1] != epoch:  # otherwise, only the last row of an epoch is kept
        epochs.lines.append(line)
        epochs.updates.append(update)
        epochs.values.append(epoch)
    else:
        epochs.lines[-1], epochs.updates[-1] = line, update


def _count_epochs(ends: Curve) -> Curve:
    """Turn the last rows of the epochs into the number of epochs completed; the last epoch may be incomplete."""
    for place in range(len(ends)):
        ends.values[place] += 1
    if len(ends) > 1:
        before = ends.updates[-3] if len(ends) > 2 else 0
        usual, last = ends.updates[-2] - before, ends.updates[-1] - ends.updates[-2]
        if 0 < last < usual:
            ends.values[-1] += last / usual - 1
    return ends


def _complete_lines(file: object, largest: int | None) -> Iterator[bytes]:
    """Yield the lines that end with a newline; the last line may still be being written."""
    total = 0
    for line in file:  # type: ignore[attr-defined]
        total += len(line)
        if not line.endswith(b"\n") or (largest is not None and total > largest):
            return
        yield line


def bucketize(curve: Curve, size: int) -> list[Bucket]:
    """Split a curve into buckets of `size` points."""
    found = []
    for start in range(0, len(curve), size):
        values = [value for value in curve.values[start : start + size] if math.isfinite(value)]
        updates = curve.updates[start : start + size]
        found.append(_summarize(updates[0], updates[-1], values, values, values))
    return found


def merge(buckets: list[Bucket], factor: int) -> list[Bucket]:
    """Merge consecutive buckets."""
    found = []
    for start in range(0, len(buckets), factor):
        group = buckets[start : start + factor]
        known = [bucket for bucket in group if not math.isnan(bucket.mean)]
        means, lows, highs = ([getattr(bucket, name) for bucket in known] for name in ("mean", "low", "high"))
        found.append(_summarize(group[0].first, group[-1].last, means, lows, highs))
    return found


def _summarize(first: float, last: float, means: list[float], lows: list[float], highs: list[float]) -> Bucket:
    if not means:
        return Bucket(first, last, math.nan, math.nan, math.nan)
    return Bucket(first, last, sum(means) / len(means), min(lows), max(highs))


def build_levels(curve: Curve) -> list[list[Bucket]]:
    """Return the levels to store, finest first; none for a curve that can be plotted directly."""
    if len(curve) <= MAX_BUCKETS:
        return []
    levels = [bucketize(curve, FIRST_LEVEL)]
    while len(levels[-1]) > MAX_BUCKETS // FACTOR:
        levels.append(merge(levels[-1], FACTOR))
    return levels


def levels_to_store(curves: Curves) -> Iterator[tuple[str, int, bytes]]:
    """Yield `(name, level, packed buckets)` of the curves that the index stores; the names of clocks start with `#`."""
    large = curves.size > LARGE_FILE
    for name, curve in islice(curves.metrics.items(), MAX_METRICS):
        for level, buckets in enumerate(build_levels(curve) or ([to_buckets(curve)] if large else [])):
            yield name, level, pack(buckets)
    for name, curve in curves.clocks.items() if large else ():
        yield f"#{name}", 0, pack(to_buckets(curve))


def to_buckets(curve: Curve) -> list[Bucket]:
    """Return the points of a curve, in at most `MAX_BUCKETS` buckets."""
    return bucketize(curve, max(1, math.ceil(len(curve) / MAX_BUCKETS)))


def pack(buckets: list[Bucket]) -> bytes:
    return array("d", [value for bucket in buckets for value in bucket]).tobytes()


def unpack(data: bytes) -> list[Bucket]:
    values = array("d")
    values.frombytes(data)
    return [Bucket(*values[start : start + 5]) for start in range(0, len(values), 5)]
