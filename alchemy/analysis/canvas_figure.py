"""Draw the frame of a canvas as a PNG picture, with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from alchemy.analysis.drawings import Curves, Drawing, Images, Summary
from alchemy.analysis.plot_png import draw_panel, encode_png
from alchemy.analysis.series import PlotLine
from alchemy.errors import printable
from alchemy.index.value_format import format_number
from alchemy.optional_packages import import_package

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

WIDTH, PLOT_HEIGHT, LINE_HEIGHT = 7.2, 2.6, 0.28  # inches
HIGHEST_IMAGE = 2.4
SCREEN_WIDTH = 720  # pixels in a page; the picture itself has twice as many


def draw_figure(frame: Sequence[Drawing]) -> bytes:
    """Return a frame as a PNG file."""
    import_package("matplotlib", "a picture of a canvas")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    frame = sorted(frame, key=lambda drawing: not isinstance(drawing, Summary))  # on top
    heights = [_height(drawing) for drawing in frame]
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=2 * SCREEN_WIDTH / WIDTH, layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(frame), 1, height_ratios=heights, squeeze=False)
    for part, drawing in zip(parts[:, 0], frame, strict=True):
        _draw(part, drawing)
    return encode_png(figure)


def _height(drawing: Drawing) -> float:
    if isinstance(drawing, Summary):
        return LINE_HEIGHT * len(drawing.lines) + 0.1
    if isinstance(drawing, Curves):
        return PLOT_HEIGHT
    width = (WIDTH - 0.4) / len(drawing.images)
    sides = [width * image.shape[0] / image.shape[1] for image in drawing.images]
    return min(max(sides), HIGHEST_IMAGE) + 0.6


def _draw(part: SubFigure, drawing: Drawing) -> None:
    if isinstance(drawing, Summary):
        text = part.text(0.02, 0.5, printable("\n".join(drawing.lines)), fontsize=10, va="center")
        text.set_parse_math(False)
    elif isinstance(drawing, Images):
        _draw_images(part, drawing)
    else:
        panel = drawing.plot.panels[0]
        if drawing.plot.has_values:
            panel = replace(panel, lines=[replace(line, label=_with_value(line)) for line in panel.lines])
        axes = part.subplots()
        draw_panel(axes, panel, drawing.plot)
        if drawing.plot.has_values:  # steps are whole numbers
            axes.locator_params(axis="x", integer=True)


def _with_value(line: PlotLine) -> str:
    last = next((y for y in reversed(line.ys) if math.isfinite(y)), math.nan)
    return f"{line.label}: {format_number(last)}"


def _draw_images(part: SubFigure, drawing: Images) -> None:
    texts = [part.suptitle(printable(drawing.title), x=0.01, ha="left", fontsize=10)]
    axes = part.subplots(1, len(drawing.images), squeeze=False)[0]
    for one, image, caption in zip(axes, drawing.images, drawing.captions, strict=True):
        one.imshow(image, interpolation="nearest")
        one.axis("off")
        texts.append(one.set_title(printable(caption), fontsize=8))
    for text in texts:
        text.set_parse_math(False)
