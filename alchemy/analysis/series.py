"""The curves of a plot: read from the index, put on a common x-axis, smoothed, and averaged over seeds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from alchemy.analysis.axes import Axis, fit_axis
from alchemy.analysis.groups import REPEATED, changed_keys, fold_seeds
from alchemy.errors import AlchemyError
from alchemy.index.curves import Bucket
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row, drop_repeats
from alchemy.index.value_format import format_count

X_AXES = ("update", "epoch", "time")
LOSSES = ("train/loss", "dev/loss")
MAX_LINES = 40
MAX_POINTS = 1000  # of a mean over runs whose points are at different places
MAX_KEYS, LONGEST_LABEL = 3, 80  # config values in a label, and its characters
_UNITS = ((3 * 86400, 86400, "days"), (3 * 3600, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))


@dataclass
class PlotLine:
    """A curve: `ys[i]` at `xs[i]`, where NaN is a gap. The other values of a point are optional.

    `low` and `high` bound the points that `ys` summarizes: the standard deviation over seeds (`runs` > 1), or the
    extremes of a long curve. `raw` is the curve before smoothing. With `dots`, the points are not connected.
    """

    label: str
    xs: list[float]
    ys: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    runs: int = 1
    dots: bool = False


@dataclass
class Panel:
    """Curves with the same axes. The x-axis has numbers, or `ticks`: places with their labels.

    In a picture, `labels` are texts at points `(x, y)`, instead of the numbers of the y-axis.
    """

    title: str
    lines: list[PlotLine]
    ticks: list[tuple[float, str]] = field(default_factory=list)
    labels: list[tuple[float, float, str]] = field(default_factory=list)


@dataclass
class Plot:
    """The panels of a plot, and remarks about what it does not show."""

    panels: list[Panel]
    x_label: str
    log: bool = False
    notes: list[str] = field(default_factory=list)
    has_values: bool = True  # whether the legend shows the last, lowest and highest value of each curve

    def axes(self, panel: Panel) -> tuple[Axis, Axis]:
        """Return the x-axis, which all panels share, and the y-axis of a panel, which shows its bands too."""
        places = (place for other in self.panels for place, _ in other.ticks)
        xs = chain(places, (x for other in self.panels for line in other.lines for x in line.xs))
        ys = (y for line in panel.lines for values in (line.ys, line.low, line.high, line.raw) for y in values)
        return fit_axis(xs), fit_axis(ys, log=self.log)


def choose_metrics(names: Collection[str], monitored: Iterable[str]) -> list[list[str]]:
    """Return what to plot by default: the losses in the first panel, and the monitored metrics in one panel each.

    >>> choose_metrics({"train/loss", "dev/loss", "dev/f1", "train/lr"}, ["dev/f1"])
    [['train/loss', 'dev/loss'], ['dev/f1']]
    """
    losses = [name for name in LOSSES if name in names]
    others = [[name] for name in dict.fromkeys(monitored) if name in names and name not in losses]
    return ([losses] if losses else []) + others


def build_plot(
    index: RecordIndex,
    rows: Sequence[Row],
    metrics: Sequence[Sequence[str]],
    *,
    x: str = "update",
    smooth: float = 0.0,
    log: bool = False,
    each: bool = False,
) -> Plot:
    """Build a panel for each group of metrics. Runs that differ only in their seed become one curve, unless `each`."""
    if not 0 <= smooth < 1:
        raise AlchemyError(f"smoothing must be at least 0 and below 1, got {smooth}", hint="0.9 is strong")
    groups = [[row] for row in dict.fromkeys(rows)] if each else list(map(drop_repeats, fold_seeds(rows)))
    if len(groups) > MAX_LINES:
        hint = "use a narrower filter"
        raise AlchemyError(f"{len(groups)} curves are too many for a plot, at most {MAX_LINES} are shown", hint=hint)
    labels = label_groups(index, groups)
    panels: list[Panel] = []
    repeated = 0 if each else len(set(rows)) - sum(map(len, groups))
    notes = [f"{format_count(repeated, 'run')} {REPEATED}"] if repeated else []
    for names in metrics:
        lines = []
        for name in names:
            for group, label, line in zip(groups, labels, read_plot_lines(index, groups, name, x, smooth), strict=True):
                if line is None:
                    continue
                line.label = label if len(names) == 1 else name if len(groups) == 1 else f"{name} · {label}"
                lines.append(line)
                missing = len(group) - line.runs
                notes += [f"{format_count(missing, 'run')} of {label} without {name}"] if missing else []
        if not lines:
            known = sorted({name for table in index.metrics(rows).values() for name in table})
            hint = index.names.suggest(names[0]) or f"they have {', '.join(known[:8]) or 'no metrics'}"
            raise AlchemyError(f"none of these runs has logged {' or '.join(names)}", hint=hint)
        panels.append(Panel(", ".join(names), lines))
    unit = _scale_time(panels) if x == "time" else ""
    hidden = sum(value <= 0 for panel in panels for line in panel.lines for value in line.ys) if log else 0
    notes += [f"not shown on the logarithmic axis: {format_count(hidden, 'value')} at or below 0"] if hidden else []
    gaps = sum(not math.isfinite(value) for panel in panels for line in panel.lines for value in line.ys)
    notes += [f"not finite, shown as a gap: {format_count(gaps, 'value')}"] if gaps else []
    return Plot(panels, f"time ({unit})" if unit else x, log, notes)


def read_plot_lines(
    index: RecordIndex, groups: Sequence[Sequence[Row]], metric: str, x: str = "update", smooth: float = 0.0
) -> list[PlotLine | None]:
    """Return the curve of a metric for each group, merged over its runs; None for a group that has not logged it."""
    read = _Reader(index, x)
    found = [[curve for row in group if (curve := read(row, metric))] for group in groups]
    return [_merge(curves, smooth) if curves else None for curves in found]


def label_groups(index: RecordIndex, groups: Sequence[Sequence[Row]]) -> list[str]:
    """Label groups of runs by what tells them apart: tags and config values, else their ids."""
    names = index.shorten_ids(group[0] for group in groups)
    if len(groups) == 1:
        row, count = groups[0][0], len(groups[0])
        return [f"{row.tag} {names[row.id]}" if count == 1 else f"{row.tag} ({format_count(count, 'run')})"]
    keys = list(changed_keys(index, groups).items())[:MAX_KEYS]
    same_tag = len({group[0].tag for group in groups}) == 1
    texts = []
    for place, group in enumerate(groups):
        parts = [] if same_tag else [group[0].tag]
        parts += [f"{key.rpartition('.')[2]}={values[place]}" for key, values in keys if values[place] is not None]
        texts.append(" ".join(parts))
    counts = Counter(texts)
    for place, group in enumerate(groups):
        if not texts[place] or counts[texts[place]] > 1:
            texts[place] = f"{texts[place]} {names[group[0].id]}".strip()
    several = any(len(group) > 1 for group in groups)
    labels = [
        f"{text} ({format_count(len(group), 'run')})" if several else text
        for text, group in zip(texts, groups, strict=True)
    ]
    return [label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…" for label in labels]


class _Reader:
    """Reads curves as lines, with x in updates, epochs or seconds."""

    def __init__(self, index: RecordIndex, x: str) -> None:
        self._index, self._x = index, x

    def __call__(self, row: Row, metric: str) -> PlotLine | None:
        buckets = self._index.curves.read(row, metric)
        if not buckets:
            return None
        return build_line("", buckets, self._converter(row))

    def _converter(self, row: Row) -> Callable[[float], float]:
        if self._x == "update":
            return float
        updates, values = read_clock(self._index, row, self._x)
        return lambda update: interpolate(updates, values, update)


def read_clock(index: RecordIndex, row: Row, name: str) -> tuple[list[float], list[float]]:
    """Return updates and the epochs completed, or the run time in seconds, at each; both start with 0 and increase."""
    updates, values = [0.0], [0.0]
    for update, value in index.curves.read_clock(row, name):
        if update > updates[-1]:  # a run that was resumed may repeat updates
            updates.append(update)
            values.append(max(value, values[-1]))
    return updates, values


def build_line(label: str, buckets: Sequence[Bucket], convert: Callable[[float], float] = float) -> PlotLine:
    """Return the curve of a metric; `convert` maps an update to its place on the x-axis."""
    xs = [convert((bucket.first + bucket.last) / 2) for bucket in buckets]
    is_summary = any(bucket.first != bucket.last for bucket in buckets)
    low, high = ([b.low for b in buckets], [b.high for b in buckets]) if is_summary else ([], [])
    return PlotLine(label, xs, [bucket.mean for bucket in buckets], low, high)


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the value at x on the line through the points; the first or last value outside of them.

    >>> interpolate([0, 10], [0, 1], 5), interpolate([0, 10], [0, 1], 20)
    (0.5, 1)
    """
    place = bisect_left(xs, x)
    if place == 0 or place == len(xs):
        return ys[min(place, len(xs) - 1)]
    before, after = xs[place - 1], xs[place]
    return ys[place - 1] + (ys[place] - ys[place - 1]) * (x - before) / (after - before)


def smooth_values(values: Sequence[float], weight: float) -> list[float]:
    """Return the exponential moving average, corrected for its start, as in TensorBoard; NaN stays NaN.

    >>> smooth_values([1.0, 1.0, 4.0], 0.5)
    [1.0, 1.0, 2.7142857142857144]
    """
    total, norm, found = 0.0, 0.0, []
    for value in values:
        if not math.isfinite(value):
            found.append(value)
            continue
        total, norm = weight * total + (1 - weight) * value, weight * norm + (1 - weight)
        found.append(total / norm)
    return found


def _merge(curves: Sequence[PlotLine], smooth: float) -> PlotLine:
    """Return one curve for runs that differ only in their seed: the mean, and a band of one standard deviation."""
    if smooth:
        curves = [PlotLine("", curve.xs, smooth_values(curve.ys, smooth), raw=curve.ys) for curve in curves]
    if len(curves) == 1:
        return curves[0]
    known = []
    for curve in curves:
        pairs = {x: y for x, y in zip(curve.xs, curve.ys, strict=True) if math.isfinite(y)}
        known.append((sorted(pairs), [pairs[x] for x in sorted(pairs)]))
    grid = sorted({x for xs, _ in known for x in xs})
    if len(grid) > MAX_POINTS:
        low, high = grid[0], grid[-1]
        grid = [low + (high - low) * place / (MAX_POINTS - 1) for place in range(MAX_POINTS)]
    merged = PlotLine("", grid, [], runs=len(curves))
    for x in grid:
        values = [interpolate(xs, ys, x) for xs, ys in known if xs and xs[0] <= x <= xs[-1]]
        mean, spread = _describe(values)
        merged.ys.append(mean)
        merged.low.append(mean - spread)
        merged.high.append(mean + spread)
    return merged


def _describe(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation; plain sums, because there are thousands of them.

    >>> _describe([1.0, 3.0]), _describe([2.0])
    ((2.0, 1.4142135623730951), (2.0, 0.0))
    """
    mean = sum(values) / len(values)
    squares = sum((value - mean) * (value - mean) for value in values)
    return mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def _scale_time(panels: Sequence[Panel]) -> str:
    """Convert seconds to a readable unit, and return its name."""
    longest = max((x for panel in panels for line in panel.lines for x in line.xs), default=0.0)
    _, seconds, name = next(unit for unit in _UNITS if longest >= unit[0])
    for line in (line for panel in panels for line in panel.lines):
        line.xs = [x / seconds for x in line.xs]
    return name
