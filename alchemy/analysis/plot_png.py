"""Draw a plot as PNG, with matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from typing import TYPE_CHECKING, Any

from alchemy.analysis.axes import pad
from alchemy.analysis.plot_svg import LIGHT, MARKED, is_lowered
from alchemy.analysis.series import Panel, Plot
from alchemy.errors import printable
from alchemy.optional_packages import import_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_png(plot: Plot) -> bytes:
    """Return the plot as a PNG file."""
    import_package("matplotlib", "alchemy plot --out FILE.png")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.0 * len(plot.panels)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(plot.panels):
        draw_panel(figure.add_subplot(len(plot.panels), 1, place + 1), panel, plot)
    return encode_png(figure)


def encode_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # a font without a character of a label
        figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def draw_panel(axes: Axes, panel: Panel, plot: Plot) -> None:
    """Draw a panel of a plot on the axes of a figure."""
    if plot.log:
        axes.set_yscale("log", nonpositive="mask")
    for number, line in enumerate(panel.lines):
        top = 3 - number / 100  # the first line is on top of the others
        color, style = LIGHT[number % len(LIGHT)], "-" if number < len(LIGHT) else "--"
        if line.low and line.dots:
            axes.vlines(line.xs, line.low, line.high, color=color, linewidth=1.0)
        elif line.low:
            axes.fill_between(line.xs, line.low, line.high, color=color, alpha=0.18, linewidth=0)
        if line.raw:
            axes.plot(line.xs, line.raw, color=color, alpha=0.3, linewidth=0.8)
        marker, style = (".", " ") if line.dots else ("." if len(line.xs) <= MARKED else "", style)
        axes.plot(
            line.xs, line.ys, style, color=color, linewidth=1.4, marker=marker, label=printable(line.label), zorder=top
        )
    texts = [axes.set_title(printable(panel.title), loc="left", fontsize=10), axes.set_xlabel(plot.x_label)]
    if any(math.isfinite(y) for line in panel.lines for y in line.ys):
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if panel.labels else {}
        texts += axes.legend(fontsize=8, **beside).get_texts()
    for text in texts:  # a label is text, even if it contains a $
        text.set_parse_math(False)
    axes.grid(alpha=0.3)
    x_axis, _ = plot.axes(panel)
    axes.set_xlim(*pad(x_axis)[:2])
    for x, y, label in panel.labels:
        side, anchor = (-4, "right") if x == panel.ticks[-1][0] else (4, "left")
        box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
        options: dict[str, Any] = {"fontsize": 8, "va": "center", "bbox": box, "parse_math": False}
        axes.annotate(printable(label), (x, y), (side, 0), textcoords="offset points", ha=anchor, **options)
    if panel.labels:
        axes.set_yticks([])
    if panel.ticks:
        lines = ["\n" if is_lowered(panel, number) else "" for number in range(len(panel.ticks))]
        names = [line + printable(text) for line, (_, text) in zip(lines, panel.ticks, strict=True)]
        axes.set_xticks([place for place, _ in panel.ticks], names)
