"""Plots as SVG and PNG files."""

from __future__ import annotations

import builtins
import math
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alchemy.analysis.plot_png import draw_png
from alchemy.analysis.plot_svg import draw_svg
from alchemy.analysis.series import Panel, Plot, PlotLine
from alchemy.errors import AlchemyError

SVG = "{http://www.w3.org/2000/svg}"
numbers = st.floats(width=64)


def plot_of(*lines: PlotLine, log: bool = False, title: str = "dev/f1") -> Plot:
    return Plot([Panel(title, list(lines)), Panel("train/loss", list(lines))], "update", log)


def classes(text: str) -> list[str]:
    return [str(node.get("class")).split()[0] for node in ElementTree.fromstring(text).iter(f"{SVG}path")]


def test_an_svg_has_the_line_its_band_and_the_raw_curve() -> None:
    mean = PlotLine("mean", [1, 2], [1.0, 2.0], low=[0.5, 1.5], high=[1.5, 2.5], runs=3)
    smooth = PlotLine("smooth", [1, 2], [1.0, 2.0], raw=[0.0, 3.0])
    text = draw_svg(plot_of(mean, smooth))
    found = classes(text)
    assert (found.count("band"), found.count("raw"), found.count("line")) == (2, 2, 8)  # lines of the legend included
    assert text == draw_svg(plot_of(mean, smooth))
    assert "prefers-color-scheme:dark" in text


def test_all_text_is_escaped() -> None:
    hostile = '<script>&"\x1b\x00\ufffe\ud800'
    text = draw_svg(plot_of(PlotLine(hostile, [1], [1.0]), title=hostile))
    text.encode("utf-8")
    labels = [node.text for node in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert labels.count('<script>&"\\u001b\\u0000??') == 3


@given(st.lists(st.tuples(st.floats(0, 1e9), numbers, numbers), max_size=12), st.booleans())
@example([(0.0, 0.0, 5e-324)], False)
def test_any_curve_is_valid_xml_within_the_picture(points: list[tuple[float, float, float]], log: bool) -> None:
    xs, ys, low = ([point[place] for point in sorted(points)] for place in range(3))
    root = ElementTree.fromstring(draw_svg(plot_of(PlotLine("run", xs, ys, low=low, high=ys), log=log)))
    for node in root.iter(f"{SVG}circle"):
        assert 0 <= float(node.get("cx", "nan")) <= 720 and 0 <= float(node.get("cy", "nan")) <= 1000
    assert "nan" not in "".join(node.get("d", "") for node in root.iter(f"{SVG}path"))


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0], [math.nan], [1.0, math.nan, 3.0]])
@pytest.mark.parametrize("log", [False, True])
def test_a_png_is_drawn(values: list[float], log: bool) -> None:
    pytest.importorskip("matplotlib", reason="the extra `score` is not installed")
    line = PlotLine("$x_1 长", list(range(len(values))), values, low=values, high=values, raw=values)
    data = draw_png(plot_of(line, log=log))
    assert data.startswith(b"\x89PNG")
    assert data == draw_png(plot_of(line, log=log))


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def fail(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("importlib.import_module", lambda name: fail(name))
    with pytest.raises(AlchemyError, match=r"needs the package matplotlib; pip install 'alchemy\[score\]'"):
        draw_png(plot_of(PlotLine("run", [1], [1.0])))
