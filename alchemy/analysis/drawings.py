"""The drawings of a canvas, independent of where they are shown: curves, histograms, images and a summary."""

from __future__ import annotations

import textwrap
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alchemy.analysis.axes import LARGEST
from alchemy.analysis.history import History, Series, format_step, to_numbers
from alchemy.analysis.series import Panel, Plot, PlotLine, build_line
from alchemy.errors import AlchemyError
from alchemy.index.curves import Curve, to_buckets
from alchemy.index.value_format import format_count, format_duration, format_number
from alchemy.media.pixels import to_pixels
from alchemy.media.snapshot import to_array

BINS = 40
HISTOGRAMS = 4  # of a series: the last ones
MOST_IMAGES = 10
SUMMARY_WIDTH, SUMMARY_LINES = 88, 3  # characters and lines; a picture has no room for more
FINE = 8  # points per bar of a histogram, so that bars are filled where a plot connects points


@dataclass
class Curves:
    """A plot with one panel."""

    plot: Plot

    @property
    def title(self) -> str:
        return self.plot.panels[0].title


@dataclass
class Images:
    """Images uint8 [H, W, 3] in a row, each with a caption."""

    title: str
    images: list[np.ndarray]
    captions: list[str]


@dataclass
class Summary:
    """Lines of text."""

    title: str
    lines: list[str]


Drawing = Curves | Images | Summary


def build_curves(metrics: Sequence[Series], labels: Sequence[str] | None, ylabel: str) -> Curves:
    """Return a plot of several metrics, each reduced to the points that a plot can show."""
    names = [metric.name for metric in metrics] if labels is None else list(labels)
    if not metrics:
        raise AlchemyError("there is nothing to draw", hint='for example draw_plot([history["loss"]])')
    if len(names) != len(metrics):
        raise AlchemyError(f"{len(names)} labels for {len(metrics)} metrics", hint="pass one label for each metric")
    lines = [_reduce(metric, name) for metric, name in zip(metrics, names, strict=True)]
    return Curves(Plot([Panel(ylabel or ", ".join(names), lines)], metrics[0].x_label))


def _reduce(metric: Series, label: str) -> PlotLine:
    curve, values = Curve(), array("d", [value for value in metric.data if isinstance(value, float)])
    if len(values) < len(metric.data):
        hint = "draw it with draw_image or draw_hist"
        raise AlchemyError(f"{metric.name!r} has arrays, not only numbers", hint=hint)
    curve.extend(array("q", range(len(values))), array("q", metric.places), values)
    return build_line(label, to_buckets(curve))


def build_histograms(values: object, title: str) -> Curves:
    """Return a histogram; of a series, that of its numbers, or those of its last arrays."""
    named: list[tuple[str, object]] = [("", values)]
    if isinstance(values, Series) and all(isinstance(value, float) for value in values.data):
        title, named = title or values.name, [("", values.data)]
    elif isinstance(values, Series):
        recent = list(zip(values.steps, values.data, strict=True))[-HISTOGRAMS:]
        named = [(f"step {format_step(step)}", data) for step, data in reversed(recent)]
        title = title or values.name
    flat = {label: _flatten(data, title) for label, data in named}
    known = [np.clip(own[np.isfinite(own)], -LARGEST, LARGEST) for own in flat.values()]
    everything = np.concatenate(known)
    low, high = (float(everything.min()), float(everything.max())) if everything.size else (0.0, 1.0)
    edges = np.linspace(low, high, BINS + 1) if low < high else np.linspace(low - 0.5, low + 0.5, BINS + 1)
    lines = [_bars(label, own, edges) for label, own in zip(map(_describe, flat, flat.values()), known, strict=True)]
    for line in lines[1:]:  # only the newest one is filled
        line.low, line.high = [], []
    return Curves(Plot([Panel(title or "histogram", lines)], "value", has_values=False))


def _flatten(values: object, name: str) -> np.ndarray:
    try:
        return to_numbers(values).astype(np.float64).ravel()
    except ValueError as error:
        raise AlchemyError(f"cannot draw a histogram{f' of {name!r}' if name else ''}: {error}") from error


def _describe(label: str, values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    text = (f"{label}: " if label else "") + format_count(values.size, "value")
    if known.size:
        scale = max(float(np.abs(known).max()), 1.0)  # sums of huge values would overflow
        mean, spread = (scale * float(number) for number in ((known / scale).mean(), (known / scale).std()))
        text += f", mean {format_number(mean)}, std {format_number(spread)}"
    missing = values.size - known.size
    return text + (f", {missing:,} not finite" if missing else "")


def _bars(label: str, values: np.ndarray, edges: np.ndarray) -> PlotLine:
    counts = np.histogram(values, edges)[0].astype(float)
    xs = np.linspace(edges[:-1], edges[1:], FINE, axis=1).ravel().tolist()  # with both ends of each bar
    heights = np.repeat(counts, FINE).tolist()
    return PlotLine(label, xs, heights, [0.0] * len(heights), heights)


def build_images(image: object, limit: int, title: str) -> Images:
    """Return an image, or the last ones of a series or a batch."""
    limit = max(1, min(limit, MOST_IMAGES))
    try:
        if isinstance(image, Series):
            captions = [f"step {format_step(step)}" for step in image.steps[-limit:]]
            return Images(title or image.name, [to_pixels(one)[0] for one in image.data[-limit:]], captions)
        batch = list(image[-limit:]) if to_array(image).ndim == 4 else [image]  # type: ignore[index]
        return Images(title or "image", [to_pixels(one)[0] for one in batch], [""] * len(batch))
    except ValueError as error:
        raise AlchemyError(f"not an image: {error}") from error


def build_summary(history: History, title: str) -> Summary:
    time = format_duration(history.seconds)
    text = history.describe_step() + (f"  time {time}" if history.step is not None else "")
    lines = textwrap.wrap(text, SUMMARY_WIDTH, max_lines=SUMMARY_LINES, placeholder=" ...")
    return Summary("summary", [title, *lines] if title else lines)
