"""Axes and ticks, for any range of values."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.axes import find_ticks, fit_axis, format_ticks, pad

anything = st.lists(st.floats(width=64), max_size=8)


@given(anything, st.booleans(), st.integers(1, 12))
def test_any_values_fit_an_axis_with_distinct_ticks(values: list[float], log: bool, count: int) -> None:
    axis = fit_axis(values, log=log)
    assert axis.low < axis.high
    for value in values:
        place = axis.place(value)
        assert math.isnan(place) or -1e-6 <= place <= 1 + 1e-6
        assert math.isnan(place) == (not math.isfinite(value) or (log and value <= 0))
    for shown in (axis, pad(axis)):
        ticks = find_ticks(shown, count)
        assert 1 <= len(ticks) <= 6 * count + 6
        assert len(format_ticks(ticks)) == len(ticks)
        assert all(math.isnan(place) or -0.5 <= place <= 1.5 for place in map(shown.place, ticks))


def test_ticks_are_round_numbers() -> None:
    assert find_ticks(fit_axis([0.0, 7500.0]), 8) == [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000]
    assert find_ticks(fit_axis([0.61, 0.94]), 4) == [0.7, 0.8, 0.9]
    assert find_ticks(fit_axis([1e-5, 1e-2], log=True), 5) == [1e-5, 1e-4, 1e-3, 1e-2]
    assert format_ticks([1_000_000.0, 1_000_001.0]) == ["1000000", "1000001"]
