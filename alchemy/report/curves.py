"""The curves of a report: one panel for each score, with a line for each group and split."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alchemy.analysis.series import X_AXES, PlotLine, interpolate, read_clock, read_plot_lines
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_names
from alchemy.records.metrics_file import MACHINE_PREFIXES

MOST_PANELS = 40
MOST_POINTS, LEAST_POINTS, MOST_OF_LINE = 40_000, 100, 2_000  # of all lines, and bounds for one of them
CLOCK_POINTS = 200  # of the run time and of the epochs of a group
COLORS, DASHES = 8, 4  # that the style sheet defines
SPLITS = ("test", "dev", "valid", "train")  # the order of lines


def build_curves(index: RecordIndex, groups: Sequence[Sequence[Row]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the panels of all metrics with more than one value, the monitored ones first, and notes."""
    panels = _choose_panels(index, groups)
    names = list(panels)
    notes = [f"no curves of {format_names(names[MOST_PANELS:], 10)}"] if len(names) > MOST_PANELS else []
    chosen = {name: panels[name] for name in names[:MOST_PANELS]}
    count = sum(map(len, chosen.values())) * len(groups)
    most = min(max(MOST_POINTS // max(count, 1), LEAST_POINTS), MOST_OF_LINE)
    splits = list(dict.fromkeys(_split_of(metric) for metrics in chosen.values() for metric in metrics))
    found = []
    for name, metrics in chosen.items():
        lines = []
        for dash, metric in enumerate(metrics):
            for group, line in enumerate(read_plot_lines(index, groups, metric)):
                if line is not None:
                    style = _describe_line(
                        group, len(groups), _split_of(metric), splits, dash if len(metrics) > 1 else None
                    )
                    lines.append(style | pack_line(line, most))
        machine = metrics[0].startswith(MACHINE_PREFIXES)
        if any(len(line["xs"]) > 1 for line in lines):
            found.append({"title": metrics[0] if len(metrics) == 1 else name, "machine": machine, "lines": lines})
    return found, notes


def _describe_line(group: int, groups: int, split: str, splits: Sequence[str], dash: int | None) -> dict[str, Any]:
    """Return the group, color, dashes and label of a line. Colors tell groups apart or, of one group, the splits.

    `dash` is the number of the split in the panel, or None if there is only one.
    """
    if groups == 1:
        return {"group": group, "color": splits.index(split) % COLORS, "dash": 0, "label": split}
    letter = string.ascii_uppercase[group]
    label = letter if dash is None else f"{letter} {split}"
    return {"group": group, "color": group % COLORS, "dash": (dash or 0) % DASHES, "label": label}


def _choose_panels(index: RecordIndex, groups: Sequence[Sequence[Row]]) -> dict[str, list[str]]:
    """Return the metrics of each panel: those of all splits with the same name, such as `train/loss` and `dev/loss`."""
    rows = [row for group in groups for row in group]
    tables = index.metrics(rows)
    names = {name for table in tables.values() for name, summary in table.items() if summary["points"] > 1}
    monitored = {row.best_metric.rpartition("/")[2] for row in rows}
    panels: dict[str, list[str]] = {}
    for name in sort_splits(sorted(names)):
        score = name if name.startswith(MACHINE_PREFIXES) else name.rpartition("/")[2]
        panels.setdefault(score, []).append(name)

    def order(score: str) -> tuple[bool, bool, bool, int, str]:
        metrics = panels[score]
        machine = metrics[0].startswith(MACHINE_PREFIXES)
        return machine, score not in monitored, score != "loss", min(map(_split_place, metrics)), score

    return {score: panels[score] for score in sorted(panels, key=order)}


def build_clocks(index: RecordIndex, rows: Sequence[Row]) -> dict[str, list[list[float]]]:
    """Return the epochs completed and the run time at some updates, each the mean over the runs that got so far."""
    found = {}
    for name in X_AXES[1:]:
        clocks = [read_clock(index, row, name) for row in rows]
        last = max((updates[-1] for updates, _ in clocks), default=0.0)
        points, count = [], min(CLOCK_POINTS, math.ceil(last))
        for place in range(1, count + 1):
            update = last * place / count
            values = [interpolate(*clock, update) for clock in clocks if clock[0][-1] >= update]
            points.append([round(update, 2), float(f"{sum(values) / len(values):.6g}")])
        found[name] = points
    return found


def describe_curves(panels: Sequence[Mapping[str, Any]]) -> str:
    """Return how to read the lines and bands of the panels."""
    lines = [line for panel in panels for line in panel["lines"]]
    texts = []
    if any(line["runs"] > 1 for line in lines):
        texts.append("Lines are means over seeds, and bands are one standard deviation.")
    if any(line["runs"] == 1 and line["bands"] for line in lines):
        texts.append("Long curves are summarized: the line is the mean of neighboring values, the band their range.")
    return " ".join(texts)


def sort_splits(metrics: Sequence[str]) -> list[str]:
    """Sort metrics by their split, tests first; within a split, they keep their order."""
    return sorted(metrics, key=lambda metric: (_split_place(metric), _split_of(metric)))


def _split_of(metric: str) -> str:
    return metric.rpartition("/")[0]


def _split_place(metric: str) -> int:
    split = _split_of(metric)
    return SPLITS.index(split) if split in SPLITS else len(SPLITS)


def pack_line(line: PlotLine, most: int) -> dict[str, Any]:
    """Return a line of at most `most` points: differences of x, and y with null for gaps, in a few digits.

    The band contains the points that each point of a long curve summarizes; over seeds (`runs` > 1), it is one standard
    deviation below and above the mean.
    """
    size = max(1, math.ceil(len(line.xs) / most))
    xs = [round(x) for x in _merge(line.xs, size, _mean)]
    ys = _merge(line.ys, size, _mean)
    low, high = line.low, line.high
    if size > 1 and not low:
        low = high = line.ys
    over_seeds = line.runs > 1
    found: dict[str, Any] = {
        "xs": [after - before for before, after in zip([0, *xs], xs)],
        "ys": [_round(y) for y in ys],
        "runs": line.runs,
        "gaps": sum(not math.isfinite(y) for y in line.ys),
        "bands": [],
    }
    if low:
        edges = (low, _mean if over_seeds else min), (high, _mean if over_seeds else max)
        found["bands"] = [[[_round(y) for y in _merge(values, size, merge)] for values, merge in edges]]
    return found


def _merge(values: Sequence[float], size: int, merge: Callable[[list[float]], float]) -> list[float]:
    """Merge consecutive values, without NaN and infinities."""
    if size == 1:
        return list(values)
    found = []
    for start in range(0, len(values), size):
        known = [value for value in values[start : start + size] if math.isfinite(value)]
        found.append(merge(known) if known else math.nan)
    return found


def _mean(values: list[float]) -> float:
    return math.fsum(value / len(values) for value in values)  # the sum of huge values may be infinite


def _round(value: float) -> float | int | None:
    """Return a number with 6 digits; None for NaN, infinities, and numbers that a chart cannot show.

    >>> _round(0.123456789), _round(3.0), _round(float("nan"))
    (0.123457, 3, None)
    """
    if not abs(value) < 1e100:
        return None
    short = float(f"{value:.6g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short
