"""Draw a plot as text, with braille characters, or with one letter per curve where colors or Unicode are missing."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence

from alchemy.analysis.axes import Axis, find_ticks, format_ticks
from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.errors import display_width, printable

COLORS = (33, 208, 35, 170, 220, 80, 160, 246)  # of the 256 colors, after Okabe and Ito: safe for the color-blind
MARKS = "*+ox#@%&" + string.ascii_uppercase  # more curves than that share letters
NARROWEST, LOWEST = 10, 3  # columns and rows of the plot itself
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a braille character by row and column


def draw_text(plot: Plot, width: int, height: int = 15, *, color: bool = False, unicode: bool = True) -> str:
    """Return the plot as lines of text that fit a terminal with `width` columns; each panel has `height` rows."""
    return "\n\n".join(
        "\n".join(draw_panel(panel, plot, width, max(height, LOWEST), color=color, unicode=unicode))
        for panel in plot.panels
    )


def draw_panel(panel: Panel, plot: Plot, width: int, height: int, *, color: bool, unicode: bool) -> Iterator[str]:
    """Yield the lines of one panel of a plot."""
    x_axis, y_axis = plot.axes(panel)
    ticks = find_ticks(y_axis, max(3, height // 4))
    labels = dict(zip((_row_of(y_axis, tick, height) for tick in ticks), format_ticks(ticks), strict=True))
    margin = max(map(len, labels.values()), default=0)
    columns = max(NARROWEST, width - margin - 2)
    braille = unicode and len(panel.lines) <= (len(COLORS) if color else 1)
    canvas = (_Braille if braille else _Letters)(columns, height)
    # curves with few points, such as evaluations, are drawn last, on top of the others; of equal ones, the first is
    for number, line in sorted(enumerate(panel.lines), key=lambda pair: (len(pair[1].xs), pair[0]), reverse=True):
        _draw_line(canvas, line, number, x_axis, y_axis)
    yield cut(panel.title, width, unicode)
    bar, tick_bar, corner, flat = ("│", "┤", "└", "─") if unicode else ("|", "+", "+", "-")
    for row, text in enumerate(canvas.rows(color)):
        yield f"{labels.get(row, ''):>{margin}} {tick_bar if row in labels else bar}{text}".rstrip()
    yield f"{'':>{margin}} {corner}{flat * columns}"
    yield f"{'':>{margin}}  {_place_ticks(x_axis, columns, panel.ticks)}"
    if plot.x_label:
        yield cut(f"{'':>{margin}}  {plot.x_label}", width, unicode)
    for number, line in enumerate(panel.lines):
        text = _describe_line(line) if plot.has_values else line.label
        yield _draw_legend(text, number, width, color=color, letters=not braille, unicode=unicode)


def _row_of(axis: Axis, value: float, height: int) -> int:
    return round((1 - axis.place(value)) * (height - 1))


def _place_ticks(axis: Axis, columns: int, labels: Sequence[tuple[float, str]]) -> str:
    """Return the labels of the x-axis, without overlaps."""
    ticks = find_ticks(axis, max(3, columns // 12))
    line = ""
    for tick, text in labels or zip(ticks, format_ticks(ticks), strict=True):
        text = printable(text)
        start = round(axis.place(tick) * (columns - 1)) - len(text) // 2
        start = max(0, min(start, columns - len(text)))
        if start > len(line) or (not line and start == 0):
            line = line.ljust(start) + text
    return line


def _describe_line(line: PlotLine) -> str:
    known = [y for y in line.ys if math.isfinite(y)]
    values = f"last {known[-1]:.4g}, min {min(known):.4g}, max {max(known):.4g}" if known else "no finite values"
    return f"{line.label}: {values}"


def _draw_legend(text: str, number: int, width: int, *, color: bool, letters: bool, unicode: bool) -> str:
    mark = MARKS[number % len(MARKS)] if letters else "──"
    return f" {_paint(mark, number) if color else mark} {cut(text, width - len(mark) - 2, unicode)}"


def cut(text: str, width: int, unicode: bool = True) -> str:
    """Shorten a text to the columns of a terminal, and escape its control characters."""
    text = printable("".join(" " if letter.isspace() else letter for letter in text))
    if display_width(text) <= width:
        return text
    while text and display_width(text) > max(width - 2, 1):
        text = text[:-1]
    return f"{text}{'…' if unicode else '..'}"


def _paint(text: str, number: int) -> str:
    return f"\x1b[38;5;{COLORS[number % len(COLORS)]}m{text}\x1b[0m"


def _draw_line(canvas: _Braille | _Letters, line: PlotLine, number: int, x_axis: Axis, y_axis: Axis) -> None:
    xs = [x_axis.place(x) for x in line.xs]
    low, high, ys = ([_locate(canvas, x, y_axis.place(y)) for x, y in zip(xs, values)] for values in _curves_of(line))
    for edge in (low, high) if line.runs > 1 else ():
        _connect(canvas, edge, number, every=3)
    for bottom, top in zip(low, high) if line.runs == 1 and not line.dots else ():  # the extremes of a long curve
        if bottom is not None and top is not None:
            _connect(canvas, [bottom, top], number)
    _connect(canvas, [dot for own in ys for dot in (own, None)] if line.dots else ys, number)


def _curves_of(line: PlotLine) -> tuple[list[float], list[float], list[float]]:
    return line.low, line.high, line.ys


def _connect(
    canvas: _Braille | _Letters, points: Sequence[tuple[int, int] | None], number: int, every: int = 1
) -> None:
    """Draw a line through points, where None is a gap; with `every` = 3, a dotted line."""
    for before, after in zip([None, *points], points, strict=False):
        if after is not None:
            for column, row in _trace(before or after, after):
                if (column + row) % every == 0:
                    canvas.set(column, row, number)


def _locate(canvas: _Braille | _Letters, x: float, y: float) -> tuple[int, int] | None:
    if not (math.isfinite(x) and math.isfinite(y)):
        return None
    return round(x * (canvas.width - 1)), round((1 - y) * (canvas.height - 1))


def _trace(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the dots of a straight line.

    >>> list(_trace((0, 0), (2, 1)))
    [(0, 0), (1, 0), (2, 1)]
    """
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        yield tuple(round(a + (b - a) * step / steps) for a, b in zip(start, end, strict=True))  # type: ignore[misc]


class _Braille:
    """A canvas with 2 x 4 dots per character; a character has the color of the curve that was drawn last."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = columns * 2, rows * 4
        self._bits = [[0] * columns for _ in range(rows)]
        self._owner = [[0] * columns for _ in range(rows)]

    def set(self, column: int, row: int, number: int) -> None:
        self._bits[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
        self._owner[row // 4][column // 2] = number

    def rows(self, color: bool) -> Iterator[str]:
        for bits, owners in zip(self._bits, self._owner, strict=True):
            cells = [chr(0x2800 + bit) if bit else " " for bit in bits]
            shown = [_paint(cell, owner) if color and cell != " " else cell for cell, owner in zip(cells, owners)]
            yield "".join(shown)


class _Letters:
    """A canvas with one letter per character, which tells curves apart without colors."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = columns, rows
        self._cells = [[" "] * columns for _ in range(rows)]

    def set(self, column: int, row: int, number: int) -> None:
        self._cells[row][column] = MARKS[number % len(MARKS)]

    def rows(self, color: bool) -> Iterator[str]:
        for cells in self._cells:
            yield "".join(_paint(cell, MARKS.index(cell)) if color and cell != " " else cell for cell in cells)
