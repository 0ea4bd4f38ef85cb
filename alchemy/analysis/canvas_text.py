"""Draw the frame of a canvas as text; images become colored half blocks, or shades of gray."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from alchemy.analysis.drawings import Curves, Drawing, Images, Summary
from alchemy.analysis.plot_text import cut, draw_text
from alchemy.analysis.screen import Screen

PANEL_ROWS = (4, 15)  # of a plot, without its axes and legend
AXES = 4  # rows around a plot: its title and its x-axis
IMAGE_ROWS, LARGEST_PIXEL = 16, 4  # most rows of an image, and columns of one of its pixels
SHADES = {True: " ░▒▓█", False: " .:-=+*#%@"}


def draw_frame(frame: Sequence[Drawing], screen: Screen) -> list[str]:
    """Return the lines of a frame; in a terminal, plots are as high as its rows allow."""
    summaries = [drawing for drawing in frame if isinstance(drawing, Summary)]
    others = [drawing for drawing in frame if not isinstance(drawing, Summary)]
    blocks = [[cut(line, screen.columns, screen.unicode) for line in summary.lines] for summary in summaries]
    room = screen.rows - 2 - sum(map(len, blocks)) - len(frame) if screen.live else 10**6
    blocks += [_draw(drawing, screen, room // len(others)) for drawing in others]
    lines = [line for block in blocks for line in (*block, "")][:-1]
    most = screen.rows - 1
    if screen.live and len(lines) > most:
        lines = [*lines[: most - 1], cut(f"{len(lines) - most + 1} more rows need a larger terminal", screen.columns)]
    return lines


def _draw(drawing: Curves | Images, screen: Screen, rows: int) -> list[str]:
    if isinstance(drawing, Images):
        return list(_draw_images(drawing, screen, min(max(rows - 2, PANEL_ROWS[0]), IMAGE_ROWS)))
    rest = AXES + len(drawing.plot.panels[0].lines)
    height = min(max(rows - rest, PANEL_ROWS[0]), PANEL_ROWS[1])
    return draw_text(drawing.plot, screen.columns, height, color=screen.color, unicode=screen.unicode).split("\n")


def _draw_images(drawing: Images, screen: Screen, rows: int) -> Iterator[str]:
    yield cut(drawing.title, screen.columns, screen.unicode)
    width = max((screen.columns + 2) // len(drawing.images) - 2, 1)
    pictures = [_fit(image, width, rows) for image in drawing.images]
    widths = [picture.shape[1] for picture in pictures]
    if any(drawing.captions):
        captions = [cut(text, own, screen.unicode) for text, own in zip(drawing.captions, widths)]
        yield "  ".join(f"{text:<{own}}" for text, own in zip(captions, widths)).rstrip()
    parts = [_half_blocks(one) if screen.color else _shades(one, screen.unicode) for one in pictures]
    for place in range(max(map(len, parts))):
        cells = [part[place] if place < len(part) else " " * own for part, own in zip(parts, widths)]
        yield "  ".join(cells).rstrip()


def _fit(image: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Resize an image [H, W, 3] to at most that many columns, and two pixels for each row; its height is even."""
    height, width = image.shape[:2]
    scale = min(columns / width, 2 * rows / height, LARGEST_PIXEL)
    new_height, new_width = max(round(height * scale / 2), 1) * 2, max(round(width * scale), 1)
    return _resize(_resize(image.astype(np.float64), new_height, 0), new_width, 1).round().astype(np.uint8)


def _resize(image: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Repeat the pixels along an axis, or average them if there are too many."""
    old = image.shape[axis]
    starts = np.arange(size) * old // size
    if size >= old:
        return image.take(starts, axis)
    counts = np.diff(np.append(starts, old)).reshape([-1 if place == axis else 1 for place in range(image.ndim)])
    return np.add.reduceat(image, starts, axis) / counts


def _half_blocks(image: np.ndarray) -> list[str]:
    """Return two rows of pixels for each line: the upper one is the color of a half block, the lower its background."""
    exact = os.environ.get("COLORTERM") in ("truecolor", "24bit")
    return [
        "".join(f"\x1b[38;{_color(top, exact)};48;{_color(bottom, exact)}m▀" for top, bottom in zip(*pair)) + "\x1b[0m"
        for pair in zip(image[::2].tolist(), image[1::2].tolist())
    ]


def _color(pixel: Sequence[int], exact: bool) -> str:
    """Return the color of a pixel, or the nearest one of a terminal with 256 colors.

    >>> _color([255, 0, 128], True), _color([255, 0, 128], False), _color([130, 130, 130], False)
    ('2;255;0;128', '5;198', '5;244')
    """
    red, green, blue = pixel
    if exact:
        return f"2;{red};{green};{blue}"
    if red == green == blue and 8 <= red < 243:  # the grays are finer than the cube of colors
        return f"5;{232 + (red - 3) // 10}"
    red, green, blue = (0 if value < 48 else max(1, (value - 35) // 40) for value in pixel)
    return f"5;{16 + 36 * red + 6 * green + blue}"


def _shades(image: np.ndarray, unicode: bool) -> list[str]:
    shades = SHADES[unicode]
    gray = (image[::2].mean(-1) + image[1::2].mean(-1)) / 2
    return ["".join(shades[int(value * len(shades) / 256)] for value in row) for row in gray]
