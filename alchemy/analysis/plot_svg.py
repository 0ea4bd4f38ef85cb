"""Draw a plot as SVG: the same plot always gives the same bytes, and follows the light or dark mode of the reader."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from alchemy.analysis.axes import Axis, find_ticks, format_ticks, pad
from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.errors import printable

WIDTH, HEIGHT = 720, 230  # of a plot area with its margins; the legend follows below
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 30, 40
ROW = 18  # height of a line of the legend
MOST_TICKS = 5  # labels on one line below an axis
MARKED = 40  # points up to which each one gets a mark
# after Okabe and Ito, safe for the color-blind: on a light and on a dark background
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a07800", "#3f9fd0", "#b22222", "#666666")
DARK = ("#4ea8de", "#ff8c42", "#2fc99a", "#e6a1c6", "#f0d442", "#9ad7f5", "#ff7b7b", "#b0b0b0")


def draw_svg(plot: Plot) -> str:
    """Return the plot as an SVG document."""
    parts, top = [], 0
    for panel in plot.panels:
        parts.append(f'<g transform="translate(0 {top})">\n{"".join(_draw_panel(panel, plot))}</g>\n')
        top += HEIGHT + ROW * len(panel.lines) + 10
    title = escape_text(", ".join(panel.title for panel in plot.panels))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    return (
        f'{head} role="img">\n<title>{title}</title>\n<style>\n{_style()}</style>\n'
        f'<rect class="page" width="{WIDTH}" height="{top}"/>\n{"".join(parts)}</svg>\n'
    )


def _style() -> str:
    rules = [
        "text{font:12px system-ui,sans-serif}",
        ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.raw{fill:none;stroke-width:1;opacity:.3}",
        ".band{stroke:none;opacity:.18}.dash{stroke-dasharray:6 3}.grid{stroke-width:1}",
        _palette(LIGHT, page="#ffffff", text="#24292f", grid="#d8dee4"),
        f"@media (prefers-color-scheme:dark){{{_palette(DARK, page='#0d1117', text='#c9d1d9', grid='#30363d')}}}",
    ]
    return "".join(f"{rule}\n" for rule in rules)


def _palette(colors: Sequence[str], *, page: str, text: str, grid: str) -> str:
    rules = [f".page{{fill:{page}}}text{{fill:{text}}}.grid{{stroke:{grid}}}"]
    rules += [f".label{{stroke:{page};stroke-width:3px;paint-order:stroke}}"]
    rules += [f".s{place}{{stroke:{color}}}.f{place}{{fill:{color}}}" for place, color in enumerate(colors)]
    return "".join(rules)


def _draw_panel(panel: Panel, plot: Plot) -> Iterator[str]:
    x_axis, y_axis = map(pad, plot.axes(panel))
    place = _Area(x_axis, y_axis)
    yield f'<text x="{LEFT}" y="18" font-weight="bold">{escape_text(panel.title)}</text>\n'
    yield from _draw_grid(place, panel)
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape_text(plot.x_label)}</text>\n'
    for number, line in reversed(list(enumerate(panel.lines))):
        yield from _draw_line(line, number, place)
    for x, y, text in panel.labels:
        side, anchor = (-6, "end") if x == panel.ticks[-1][0] else (6, "start")
        at = f'x="{_number(place.x(x) + side)}" y="{_number(place.y(y))}" dy="4" text-anchor="{anchor}"'
        yield f'<text class="label" {at}>{escape_text(text)}</text>\n'
    for number, line in enumerate(panel.lines):
        y = HEIGHT + ROW * number + 10
        yield f'<path class="line {_classes(number)}" d="M{LEFT} {y - 4}h24"/>\n'
        yield f'<text x="{LEFT + 32}" y="{y}">{escape_text(line.label)}</text>\n'


def is_lowered(panel: Panel, place: int) -> bool:
    """Return whether a label of many ones on the x-axis is on a second line, where it does not touch its neighbors."""
    return len(panel.ticks) > MOST_TICKS and place % 2 == 1


class _Area:
    """Maps values to coordinates."""

    def __init__(self, x_axis: Axis, y_axis: Axis) -> None:
        self.x_axis, self.y_axis = x_axis, y_axis

    def x(self, value: float) -> float:
        return LEFT + self.x_axis.place(value) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.y_axis.place(value) * (HEIGHT - TOP - BOTTOM)

    def points(self, xs: Sequence[float], ys: Sequence[float]) -> list[list[tuple[float, float]]]:
        """Return the coordinates of a curve, split at gaps."""
        found: list[list[tuple[float, float]]] = [[]]
        for point in ((self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)):
            if math.isfinite(point[0]) and math.isfinite(point[1]):
                found[-1].append(point)
            elif found[-1]:
                found.append([])
        return [part for part in found if part]


def _draw_grid(area: _Area, panel: Panel) -> Iterator[str]:
    ticks = find_ticks(area.y_axis, 5) if not panel.labels else []
    for tick, text in zip(ticks, format_ticks(ticks), strict=True):
        y = _number(area.y(tick))
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{text}</text>\n'
    ticks = find_ticks(area.x_axis, 8)
    for place, (tick, text) in enumerate(panel.ticks or zip(ticks, format_ticks(ticks), strict=True)):
        x, below = _number(area.x(tick)), HEIGHT - BOTTOM + 16 + (ROW - 4 if is_lowered(panel, place) else 0)
        yield f'<path class="grid" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x}" y="{below}" text-anchor="middle">{escape_text(text)}</text>\n'


def _draw_line(line: PlotLine, number: int, area: _Area) -> Iterator[str]:
    color = number % len(LIGHT)
    if line.low and line.dots:
        for x, low, high in zip(line.xs, line.low, line.high, strict=True):
            yield f'<path class="line s{color}" d="{_path([(area.x(x), area.y(low)), (area.x(x), area.y(high))])}"/>\n'
    elif line.low:
        known = [place for place, (a, b) in enumerate(zip(line.low, line.high, strict=True)) if math.isfinite(a + b)]
        edges = [[(area.x(line.xs[place]), area.y(side[place])) for place in known] for side in (line.high, line.low)]
        if area.y_axis.log:  # the lower edge may be at or below 0
            edges[1] = [(x, y if math.isfinite(y) else HEIGHT - BOTTOM) for x, y in edges[1]]
        outline = [*edges[0], *reversed(edges[1])]
        if len(known) > 1 and all(math.isfinite(y) for _, y in outline):
            yield f'<path class="band f{color}" d="{_path(outline)}Z"/>\n'
    if line.raw:
        for part in area.points(line.xs, line.raw):
            yield f'<path class="raw s{color}" d="{_path(part)}"/>\n'
    for part in area.points(line.xs, line.ys):
        if len(part) > 1 and not line.dots:
            yield f'<path class="line {_classes(number)}" d="{_path(part)}"/>\n'
        if len(part) == 1 or len(line.xs) <= MARKED or line.dots:
            for x, y in part:
                yield f'<circle class="f{color}" cx="{_number(x)}" cy="{_number(y)}" r="2.5"/>\n'


def _classes(number: int) -> str:
    return f"s{number % len(LIGHT)}{' dash' if number >= len(LIGHT) else ''}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _number(value: float) -> str:
    """
    >>> _number(12.3456), _number(3.0)
    ('12.3', '3')
    """
    return f"{value:.1f}".removesuffix(".0")


def escape_text(text: str) -> str:
    """Escape a text for SVG; characters that XML does not allow become escapes or question marks."""
    clean = printable(text.replace("\n", " ").replace("\t", " ")).encode("utf-8", "replace").decode("utf-8")
    return escape(clean.replace("\ufffe", "?").replace("\uffff", "?"))
