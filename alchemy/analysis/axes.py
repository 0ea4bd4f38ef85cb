"""Axes of plots: ranges, ticks and their labels, on linear and logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

SMALLEST, LARGEST = 1e-100, 1e100  # more extreme values are drawn at the edge, so that nothing overflows


class Axis(NamedTuple):
    """A range of values, shown on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies: 0 at the lower end, 1 at the upper end, at most; NaN if it cannot be shown.

        >>> Axis(0, 10).place(5), Axis(1, 100, log=True).place(10)
        (0.5, 0.5)
        """
        if not math.isfinite(value) or (self.log and value <= 0):
            return math.nan
        low, high, own = map(math.log10, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return min(max((own - low) / (high - low), 0.0), 1.0)


def fit_axis(values: Iterable[float], *, log: bool = False) -> Axis:
    """Return an axis that shows all finite values; a single value is put in the middle.

    >>> fit_axis([1.0, 3.0]), fit_axis([2.0]), fit_axis([])
    (Axis(low=1.0, high=3.0, log=False), Axis(low=1.0, high=3.0, log=False), Axis(low=0.0, high=1.0, log=False))
    """
    known = [
        min(max(value, SMALLEST if log else -LARGEST), LARGEST)
        for value in values
        if math.isfinite(value) and (value > 0 or not log)
    ]
    if not known:
        return Axis(1.0, 10.0, True) if log else Axis(0.0, 1.0)
    # a range of subnormal numbers cannot be divided into steps
    low, high = (0.0 if abs(end) < SMALLEST else end for end in (min(known), max(known)))
    if high - low <= max(abs(low), abs(high)) * 1e-12:
        reach = abs(low) / 2 or 1.0
        return Axis(low / 10, high * 10, True) if log else Axis(low - reach, high + reach)
    return Axis(low, high, log)


def pad(axis: Axis, share: float = 0.04) -> Axis:
    """Extend an axis at both ends by a share of its length."""
    if axis.log:
        factor = (axis.high / axis.low) ** share
        return Axis(axis.low / factor, axis.high * factor, True)
    extra = (axis.high - axis.low) * share
    return Axis(axis.low - extra, axis.high + extra)


def find_ticks(axis: Axis, count: int) -> list[float]:
    """Return about `count` round values within an axis.

    >>> find_ticks(Axis(0, 1), 5), find_ticks(Axis(1, 2000, log=True), 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [1.0, 10.0, 100.0, 1000.0])
    """
    if axis.log and math.log10(axis.high) - math.log10(axis.low) >= 1:
        first, last = math.ceil(math.log10(axis.low) - 1e-9), math.floor(math.log10(axis.high) + 1e-9)
        stride = max(1, math.ceil((last - first) / max(count, 1)))
        powers = [10.0**power for power in range(first, last + 1, stride)]
        if len(powers) > 1:
            return powers
    step = _round_step((axis.high - axis.low) / max(count, 1))
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    found = [place * step for place in range(first, last + 1)] if last - first <= 4 * count + 4 else []
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(value, digits) for value in found] or [axis.low, axis.high]


def _round_step(step: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, .. that is not below a step."""
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9)), 10 * power)


def format_ticks(ticks: list[float]) -> list[str]:
    """Format ticks with as many digits as tell them apart.

    >>> format_ticks([0.0, 0.5, 1.0]), format_ticks([1000.0, 20000.0]), format_ticks([1e-5, 1e-4])
    (['0', '0.5', '1'], ['1000', '20000'], ['1e-05', '0.0001'])
    """
    for digits in range(3, 17):
        texts = [_shorten(f"{tick:.{digits}g}", tick) for tick in ticks]
        if len(set(texts)) == len(set(ticks)):
            break
    return texts if ticks else []


def _shorten(text: str, tick: float) -> str:
    if "e" in text and abs(tick) < 1e6 and tick == int(tick):
        return str(int(tick))
    return "0" if text == "-0" else text
