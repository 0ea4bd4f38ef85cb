"""The plots of a sweep: parallel coordinates, and the metric by each key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.index.value_format import format_number
from alchemy.sweep.results import format_value, shorten_keys, shorten_path
from alchemy.sweep.space import Choice, Dimension
from alchemy.sweep.study import PRUNED, Study, Trial

QUARTERS = ("best quarter", "second quarter", "third quarter", "last quarter")
MOST_TICKS = 8


def build_sweep_plot(study: Study) -> Plot | None:
    """Return the plot of a sweep; None without any values. The x-axes have places from 0 to 1 with labels."""
    ranked = study.rank_trials()
    if not ranked:
        return None
    panels = [_draw_parallel(study, ranked)] if len(study.space.dimensions) > 1 else []
    panels += [_draw_slice(study, dimension, ranked) for dimension in study.space.dimensions]
    return Plot([panel for panel in panels if any(line.xs for line in panel.lines)], "", has_values=False)


def _draw_slice(study: Study, dimension: Dimension, ranked: Sequence[Trial]) -> Panel:
    """Draw a dot per point, with a bar for the standard deviation over its seeds."""
    lines = []
    for label, trials in {"best": ranked[:1], "other points": ranked[1:]}.items():
        line = PlotLine(label, [], [], dots=True)
        for trial in (trial for trial in trials if dimension.key in trial.point):
            spread = stdev(trial.values.values()) if len(trial.values) > 1 else 0.0
            line.xs.append(dimension.to_unit(trial.point[dimension.key]))
            for values, value in zip((line.low, line.ys, line.high), (-spread, 0.0, spread), strict=True):
                values.append((trial.value or 0.0) + value)
        lines.append(line)
    return Panel(f"{study.plan.metric} by {dimension.key}", lines, _label_values(dimension))


def _label_values(dimension: Dimension) -> list[tuple[float, str]]:
    if isinstance(dimension, Choice):
        step = math.ceil(len(dimension.values) / MOST_TICKS)
        values = list(dimension.values[::step])
        return [(dimension.to_unit(value), shorten_path(format_value(value))) for value in values]
    places = [0.0, 0.25, 0.5, 0.75, 1.0]
    return [(place, format_number(float(str(dimension.from_unit(place))), 3)) for place in places]


def _draw_parallel(study: Study, ranked: Sequence[Trial]) -> Panel:
    """Draw a line per point through its place along each key; the last axis is the metric, the best value on top.

    The line of a point that was pruned has no place on it.
    """
    axes = study.space.dimensions
    values = [trial.value or 0.0 for trial in ranked]
    worst, span = values[-1], values[0] - values[-1]
    lines = {label: PlotLine(label, [], []) for label in (*QUARTERS, PRUNED)}
    for trial in [*ranked, *(trial for trial in study.trials if trial.state == PRUNED)]:
        height, label = math.nan, PRUNED
        if trial.value is not None:
            height = (trial.value - worst) / span if span else 0.5
            label = QUARTERS[values.index(trial.value) * len(QUARTERS) // len(ranked)]
        line = lines[label]
        heights = [axis.to_unit(trial.point[axis.key]) if axis.key in trial.point else math.nan for axis in axes]
        line.xs += [number / len(axes) for number in range(len(axes) + 1)] + [math.nan]
        line.ys += [*heights, height, math.nan]
    names = shorten_keys([axis.key for axis in axes])
    ticks = [(number / len(axes), names[axis.key]) for number, axis in enumerate(axes)]
    labels = [(x, y, text) for (x, _), axis in zip(ticks, axes, strict=True) for y, text in _label_values(axis)]
    labels += [(1.0, 1.0, format_number(values[0])), (1.0, 0.0, format_number(worst))] if span else []
    title = "parallel coordinates (first value of a key at the bottom; best metric on top)"
    return Panel(title, [line for line in lines.values() if line.xs], [*ticks, (1.0, study.plan.metric)], labels)
