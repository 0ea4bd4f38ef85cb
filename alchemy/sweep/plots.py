"""The plots of a sweep: parallel coordinates, and the metric by each key."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.index.value_format import format_number
from alchemy.sweep.results import format_value
from alchemy.sweep.space import Choice, Dimension
from alchemy.sweep.study import Study, Trial

QUARTERS = ("best quarter", "second quarter", "third quarter", "last quarter")
MOST_TICKS = 8


def build_sweep_plot(study: Study) -> Plot | None:
    """Return the plot of a sweep; None without any values. The x-axes have places from 0 to 1 with labels."""
    ranked = study.rank_trials()
    if not ranked:
        return None
    panels = [_draw_parallel(study, ranked)] if len(study.space.dimensions) > 1 else []
    panels += [_draw_slice(study, dimension, ranked) for dimension in study.space.dimensions]
    return Plot([panel for panel in panels if panel.lines], "", has_values=False)


def _draw_slice(study: Study, dimension: Dimension, ranked: Sequence[Trial]) -> Panel:
    groups = {"best": ranked[:1], "other points": ranked[1:]}
    lines = []
    for label, trials in groups.items():
        used = [trial for trial in trials if dimension.key in trial.point]
        xs = [dimension.to_unit(trial.point[dimension.key]) for trial in used]
        if used:
            lines.append(PlotLine(label, xs, [trial.value or 0.0 for trial in used], dots=True))
    return Panel(f"{study.plan.metric} by {dimension.key}", lines, _label_values(dimension))


def _label_values(dimension: Dimension) -> list[tuple[float, str]]:
    if isinstance(dimension, Choice):
        step = math.ceil(len(dimension.values) / MOST_TICKS)
        values = list(dimension.values[::step])
        return [(dimension.to_unit(value), format_value(value)) for value in values]
    places = [0.0, 0.25, 0.5, 0.75, 1.0]
    return [(place, format_number(float(str(dimension.from_unit(place))), 3)) for place in places]


def _draw_parallel(study: Study, ranked: Sequence[Trial]) -> Panel:
    """Draw a line per point through its place along each key; the last axis is the metric, the best value on top."""
    axes = study.space.dimensions
    values = [trial.value or 0.0 for trial in ranked]
    worst, span = values[-1], values[0] - values[-1]
    lines = [PlotLine(label, [], []) for label in QUARTERS]
    for place, trial in enumerate(ranked):
        line = lines[place * len(lines) // len(ranked)]
        heights = [axis.to_unit(trial.point[axis.key]) if axis.key in trial.point else math.nan for axis in axes]
        heights.append((values[place] - worst) / span if span else 0.5)
        line.xs += [number / len(axes) for number in range(len(axes) + 1)] + [math.nan]
        line.ys += [*heights, math.nan]
    ticks = [(number / len(axes), axis.key) for number, axis in enumerate(axes)]
    labels = [(x, y, text) for (x, _), axis in zip(ticks, axes, strict=True) for y, text in _label_values(axis)]
    labels += [(1.0, 1.0, format_number(values[0])), (1.0, 0.0, format_number(worst))] if span else []
    title = "parallel coordinates (first value of a key at the bottom; best metric on top)"
    return Panel(title, [line for line in lines if line.xs], [*ticks, (1.0, study.plan.metric)], labels)
