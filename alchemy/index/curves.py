"""The curves of metrics, and the levels of detail that the index stores of them.

A level splits a curve into buckets of equal size and keeps the first and last update, the mean and the extremes of each
bucket. A plot reads the finest level that has at most `MAX_BUCKETS` buckets, whatever the length of the run. Curves are
stored only if their file is large: reading a small file is as fast.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

MAX_BUCKETS = 2000
FIRST_LEVEL, FACTOR = 16, 4  # points per bucket of the finest level of a long curve; growth from level to level
MAX_METRICS = 2_000  # per record: one hostile record must not fill the index
CLOCKS = ("time", "epoch")  # the run time in seconds, and the number of epochs completed, at the end of each


class Mark(NamedTuple):
    """A place in a file: the number of lines and bytes before it."""

    lines: int
    size: int


START = Mark(0, 0)


class Curve:
    """The values of one metric: `lines[i]` of the file has value `values[i]` at update `updates[i]`."""

    __slots__ = ("lines", "updates", "values")

    def __init__(self) -> None:
        self.lines, self.updates, self.values = array("q"), array("q"), array("d")

    def __len__(self) -> int:
        return len(self.values)

    def append(self, line: int, update: int, value: float) -> None:
        self.lines.append(line)
        self.updates.append(update)
        self.values.append(value)

    def extend(self, lines: array[int], updates: array[int], values: array[float]) -> None:
        self.lines += lines
        self.updates += updates
        self.values += values

    def after(self, line: int) -> Curve:
        """Return the points after a line of the file."""
        found, start = Curve(), bisect_right(self.lines, line)
        found.extend(self.lines[start:], self.updates[start:], self.values[start:])
        return found

    def cut(self, line: int) -> None:
        """Remove the points after a line of the file."""
        keep = bisect_right(self.lines, line)
        del self.lines[keep:], self.updates[keep:], self.values[keep:]


class Curves(NamedTuple):
    """The metrics and clocks of a file, its complete lines and bytes, some marks, and whether the run was resumed.

    `epoch_line` is the last line that determines the current epoch.
    """

    metrics: dict[str, Curve] = {}
    clocks: dict[str, Curve] = {}
    lines: int = 0
    size: int = 0
    marks: Sequence[Mark] = (START,)
    epoch_line: int = 0
    resumed: bool = False

    @property
    def updates(self) -> int:
        """The update of the last row."""
        rows = self.clocks.get("time")
        return rows.updates[-1] if rows else 0


class Bucket(NamedTuple):
    """Consecutive points of a curve; NaN and infinities count as missing in `mean`, `low` and `high`."""

    first: float
    last: float
    mean: float
    low: float
    high: float


def bucketize(curve: Curve, size: int, start: int = 0) -> list[Bucket]:
    """Split the points of a curve, from `start` on, into buckets of `size` points."""
    updates, values = curve.updates, curve.values
    found = []
    for begin in range(start, len(curve), size):
        part = values[begin : begin + size]
        found.append(_summarize(updates[begin], updates[begin + len(part) - 1], part, part, part))
    return found


def merge_buckets(buckets: Sequence[Bucket], factor: int) -> list[Bucket]:
    """Merge consecutive buckets."""
    found = []
    for start in range(0, len(buckets), factor):
        firsts, lasts, means, lows, highs = zip(*buckets[start : start + factor], strict=True)
        found.append(_summarize(firsts[0], lasts[-1], means, lows, highs))
    return found


def _summarize(
    first: float, last: float, means: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> Bucket:
    total = sum(means)
    if math.isfinite(total):  # the common case needs no search for values that are not finite
        return Bucket(first, last, total / len(means), min(lows), max(highs))
    known = [place for place, mean in enumerate(means) if math.isfinite(mean)]
    if not known:
        return Bucket(first, last, math.nan, math.nan, math.nan)
    mean = math.fsum(means[place] / len(known) for place in known)  # the total of huge values may be infinite
    return Bucket(first, last, mean, min(lows[place] for place in known), max(highs[place] for place in known))


def bucket_size(points: int) -> int:
    """Return the number of points per bucket of the finest level."""
    return 1 if points <= MAX_BUCKETS else FIRST_LEVEL


def build_levels(finest: list[Bucket]) -> list[list[Bucket]]:
    """Return the levels above the finest one, and that one."""
    levels = [finest]
    while len(levels[-1]) > MAX_BUCKETS:
        levels.append(merge_buckets(levels[-1], FACTOR))
    return levels


def to_buckets(curve: Curve) -> list[Bucket]:
    """Return the points of a curve, in at most `MAX_BUCKETS` buckets."""
    return bucketize(curve, max(1, math.ceil(len(curve) / MAX_BUCKETS)))


def complete_epochs(ends: Sequence[Bucket], updates: int) -> list[Bucket]:
    """Add the last epoch to the ends of all others, for a run with that many updates; it may be incomplete."""
    before = ends[-2].last if len(ends) > 1 else 0.0
    start, done = (ends[-1].last, ends[-1].high) if ends else (0.0, 0.0)
    if updates <= start:
        return list(ends)
    usual = start - before
    value = done + (min(1.0, (updates - start) / usual) if usual > 0 else 1.0)
    return [*ends, Bucket(updates, updates, value, value, value)]


def pack(buckets: Sequence[Bucket]) -> bytes:
    return array("d", [value for bucket in buckets for value in bucket]).tobytes()


def unpack(data: bytes) -> list[Bucket]:
    values = array("d")
    values.frombytes(data)
    return [Bucket(*values[start : start + 5]) for start in range(0, len(values), 5)]
