"""Plots as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.plot_text import draw_text
from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.errors import display_width

numbers = st.floats(width=64)


def plot_of(*lines: PlotLine, log: bool = False, title: str = "dev/f1") -> Plot:
    return Plot([Panel(title, list(lines))], "update", log)


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right() -> None:
    rows = draw_text(plot_of(PlotLine("run", [0, 1, 2], [0.0, 1.0, 2.0])), 40, 8).splitlines()
    assert rows[0] == "dev/f1"
    assert rows[1].startswith("2 ┤") and rows[8].startswith("0 ┤")
    assert rows[1].rstrip()[-1] == "⠈" or rows[1][-1] != " "
    assert rows[8][3] != " " and rows[8][-1] != "⠈"
    assert rows[10].split() == ["0", "1", "2"]
    assert rows[-1] == " ── run: last 2, min 0, max 2"


def test_curves_are_told_apart_without_colors_and_without_unicode() -> None:
    plot = plot_of(PlotLine("a", [0, 1], [0.0, 1.0]), PlotLine("b", [0, 1], [1.0, 0.0]))
    for unicode in (True, False):
        text = draw_text(plot, 40, 6, unicode=unicode)
        assert " * a: last 1" in text and " + b: last 0" in text
    assert text.isascii()
    assert "\x1b[38;5;33m" in draw_text(plot, 40, 6, color=True)


@pytest.mark.parametrize(
    "values", [[1.0], [2.0, 2.0], [math.nan], [math.nan, 1.0, math.inf], [1e308, -1e308], [5e-324]]
)
@pytest.mark.parametrize("log", [False, True])
def test_unusual_curves_are_drawn(values: list[float], log: bool) -> None:
    text = draw_text(plot_of(PlotLine("run", list(range(len(values))), values), log=log), 50, 6)
    drawn = any(0x2800 < ord(letter) < 0x2900 for letter in text)
    assert drawn == any(math.isfinite(value) and (value > 0 or not log) for value in values)


@given(
    st.lists(st.tuples(st.floats(0, 1e9), numbers), max_size=20),
    st.integers(1, 200),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
)
def test_any_curve_fits_the_terminal(points: list, width: int, height: int, log: bool, unicode: bool) -> None:
    xs, ys = [x for x, _ in sorted(points)], [y for _, y in sorted(points)]
    plot = plot_of(PlotLine("长标签 " * 20, xs, ys, low=ys, high=ys), PlotLine("b", xs, ys, runs=2), log=log)
    for row in draw_text(plot, width, height, unicode=unicode).splitlines():
        assert display_width(row) <= max(width, 40)


def test_control_characters_of_labels_are_escaped() -> None:
    text = draw_text(plot_of(PlotLine("\x1b[31mred\nb", [0], [1.0]), title="a\x1b]0;t\x07"), 60, 5)
    assert "\x1b" not in text and "\x07" not in text and "\\u001b[31mred b" in text
