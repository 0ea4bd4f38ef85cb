"""What the index stores about the metrics of a record, and how it grows with the file of a running record."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from alchemy.index.curves import START, Bucket, Curve, Curves, Mark, bucket_size, bucketize, build_levels, pack
from alchemy.index.read_curves import read_curves
from alchemy.index.value_format import LARGEST, to_finite

LARGE_FILE = 2 * 2**20  # bytes from which curves are stored


class Summary(NamedTuple):
    """The values of a metric that are listed: its last one, the one at the best checkpoint, and its extremes."""

    last: float | None
    at_best: float | None
    lowest: float | None
    highest: float | None
    points: int


class Series(NamedTuple):
    """A stored curve: the number of its points, and its finest level."""

    points: int
    finest: list[Bucket]


class MetricEntries(NamedTuple):
    """The metrics of a record: summaries, and the curves and clocks of a large file, whose names start with `#`.

    `lines`, `size` and `updates` are those of the file. To extend the entries, the file is read again from `mark` on.
    """

    summaries: dict[str, Summary] = {}
    series: dict[str, Series] = {}
    lines: int = 0
    size: int = 0
    updates: int = 0
    mark: Mark = START
    best_update: int | None = None

    def pack_levels(self) -> list[tuple[str, int, int, bytes]]:
        """Return `(name, level, number of points, packed buckets)` of all series."""
        return [
            (name, level, points, pack(buckets))
            for name, (points, finest) in self.series.items()
            for level, buckets in enumerate(build_levels(finest))
        ]


def read_metric_entries(path: Path, best_update: int | None, known: MetricEntries | None = None) -> MetricEntries:
    """Read a `metrics.jsonl` file; with the `known` entries of the same file when it was shorter, only its new lines.

    The result is the same, bit for bit.
    """
    if known is not None and (longer := _extend(path, best_update, known)) is not None:
        return longer
    curves = read_curves(path)
    summaries = {name: _summarize(curve, best_update) for name, curve in curves.metrics.items()}
    series = {}
    if curves.size > LARGE_FILE:
        series = {
            name: Series(len(curve), bucketize(curve, bucket_size(len(curve))))
            for name, curve in _named(curves).items()
        }
    return _build(curves, summaries, series, best_update)


def _build(
    curves: Curves, summaries: dict[str, Summary], series: dict[str, Series], best_update: int | None
) -> MetricEntries:
    """Set the mark to a place before the first point of every bucket that is not yet full, and the current epoch."""
    first_open = curves.epoch_line or curves.lines + 1
    for name, curve in _named(curves).items():
        if name in series and (rest := series[name].points % bucket_size(series[name].points)):
            first_open = min(first_open, curve.lines[-rest])
    mark = next(mark for mark in reversed(curves.marks) if mark.lines < first_open)
    return MetricEntries(summaries, series, curves.lines, curves.size, curves.updates, mark, best_update)


def _extend(path: Path, best_update: int | None, known: MetricEntries) -> MetricEntries | None:
    """Return the entries of a file that has grown; None if it has to be read from the start."""
    if not known.series or path.stat().st_size < known.size:
        return None
    tail = read_curves(path, known.mark)
    if tail.resumed or tail.size < known.size:
        return None
    series, summaries = dict(known.series), dict(known.summaries)
    try:
        for name, curve in _named(tail).items():
            series[name] = _extend_series(known.series.get(name), curve, known.lines)
        for name, curve in tail.metrics.items():
            summaries[name] = _extend_summary(known.summaries.get(name), curve, known.lines)
        for name, summary in summaries.items():
            value = _find_best(name, summary, tail.metrics.get(name), known, best_update)
            summaries[name] = summary._replace(at_best=value)
    except _TooShort:
        return None
    longer = _build(tail, summaries, series, best_update)
    return longer if len(tail.clocks["time"]) else longer._replace(updates=known.updates)


class _TooShort(Exception):
    """The end of the file is not enough to extend the entries."""


def _extend_series(known: Series | None, curve: Curve, lines: int) -> Series:
    old = bisect_right(curve.lines, lines)  # points that are known
    known = known or Series(0, [])
    points = known.points + len(curve) - old
    size = bucket_size(points)
    full, rest = divmod(known.points, size)
    if rest > old or (known.points and bucket_size(known.points) != size):
        raise _TooShort
    return Series(points, known.finest[:full] + bucketize(curve, size, old - rest))


def _extend_summary(known: Summary | None, curve: Curve, lines: int) -> Summary:
    new = curve.after(lines)
    if not len(new):
        assert known is not None
        return known
    added = _summarize(new, None)
    if known is None:
        return added
    lowest, highest = (
        choose((value for value in values if value is not None), default=None)
        for choose, values in ((min, (known.lowest, added.lowest)), (max, (known.highest, added.highest)))
    )
    return Summary(added.last, None, lowest, highest, known.points + added.points)


def _find_best(
    name: str, summary: Summary, tail: Curve | None, known: MetricEntries, best_update: int | None
) -> float | None:
    """Return the value of a metric at the best checkpoint."""
    if best_update is None:
        return summary.last
    place = _find_update(tail, best_update) if tail is not None else -1
    if tail is not None and place >= 0:
        return to_finite(tail.values[place])
    if name not in known.summaries:
        return None
    if best_update == known.best_update:
        return known.summaries[name].at_best
    if known.series[name].finest[-1].last <= best_update:
        return known.summaries[name].last
    raise _TooShort


def _named(curves: Curves) -> dict[str, Curve]:
    return {**curves.metrics, **{f"#{name}": curve for name, curve in curves.clocks.items() if len(curve)}}


def _summarize(curve: Curve, best_update: int | None) -> Summary:
    values: Sequence[float] = curve.values
    if not math.isfinite(sum(values)) or max(values) >= LARGEST or min(values) <= -LARGEST:
        values = [value for value in values if to_finite(value) is not None]
    lowest, highest = (min(values), max(values)) if values else (None, None)
    place = len(curve) - 1 if best_update is None else _find_update(curve, best_update)
    at_best = to_finite(curve.values[place]) if place >= 0 else None
    return Summary(to_finite(curve.values[-1]), at_best, lowest, highest, len(curve))


def _find_update(curve: Curve, update: int) -> int:
    """Return the position of the last value logged up to an update, or -1."""
    for place in range(len(curve) - 1, -1, -1):
        if curve.updates[place] <= update:
            return place
    return -1
