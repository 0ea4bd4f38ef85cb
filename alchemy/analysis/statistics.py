"""Compare the means of two groups of numbers: t-tests and confidence intervals, without scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple


class Difference(NamedTuple):
    """How much larger the mean of the second group is, with its standard error and confidence interval.

    `p` is the two-sided p-value; `freedom` the degrees of freedom. With `paired`, `counts` are the same: the pairs.
    """

    mean: float
    error: float
    low: float
    high: float
    p: float
    freedom: float
    paired: bool
    counts: tuple[int, int]


def paired_test(one: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> Difference:
    """Compare two groups with a paired t-test: `one[i]` and `other[i]` belong together, for example by their seed.

    >>> found = paired_test([1.0, 2.0, 3.0], [1.5, 2.4, 3.6])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3), round(found.p, 4)
    (0.5, 0.252, 0.748, 0.0131)
    """
    changes = [b - a for a, b in zip(one, other, strict=True)]
    count = len(changes)
    if count < 2:
        raise ValueError("a paired test needs at least two pairs")
    error = math.sqrt(variance(changes) / count)
    return _describe(fmean(changes), error, count - 1, confidence, paired=True, counts=(count, count))


def welch_test(one: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> Difference:
    """Compare two independent groups with Welch's t-test, which does not assume equal variances.

    >>> found = welch_test([1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0])
    >>> round(found.mean, 3), round(found.p, 4), round(found.freedom, 2)
    (1.5, 0.1443, 4.96)
    """
    counts = len(one), len(other)
    if min(counts) < 2:
        raise ValueError("Welch's test needs at least two values in each group")
    parts = [variance(values) / len(values) for values in (one, other)]
    total = sum(parts)
    weights = sum((part / (total or 1)) ** 2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    freedom = 1 / weights if weights > 0 else float(sum(counts) - 2)
    return _describe(fmean(other) - fmean(one), math.sqrt(total), freedom, confidence, paired=False, counts=counts)


def _describe(
    mean: float, error: float, freedom: float, confidence: float, *, paired: bool, counts: tuple[int, int]
) -> Difference:
    reach = student_quantile(confidence, freedom) * error
    # without any spread, there is either no difference, or one without any doubt
    p = student_p(mean / error, freedom) if error > 0 else float(mean == 0)
    return Difference(mean, error, mean - reach, mean + reach, p, freedom, paired, counts)


def student_p(t: float, freedom: float) -> float:
    """Return the probability that a t-distributed value is at least as far from 0 as `t`.

    >>> round(student_p(2.0, 10), 6), round(student_p(-12.706, 1), 4)
    (0.073388, 0.05)
    """
    if math.isinf(t):
        return 0.0
    square = t * t
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))


def student_quantile(confidence: float, freedom: float) -> float:
    """Return the `t` within which a t-distributed value lies with probability `confidence`.

    >>> round(student_quantile(0.95, 2), 4), round(student_quantile(0.95, 1e6), 3)
    (4.3027, 1.96)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be between 0 and 1, got {confidence}")
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 1 - confidence and high < 1e300:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if student_p(middle, freedom) > 1 - confidence else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float, rest: float | None = None) -> float:
    """Return the regularized incomplete beta function I_x(a, b). `rest` is 1 - x, if it is known more precisely.

    >>> incomplete_beta(1, 1, 0.25), round(incomplete_beta(2, 3, 0.5), 6)
    (0.25, 0.6875)
    """
    rest = 1 - x if rest is None else rest
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    if x < (a + 1) / (a + b + 2):  # where the continued fraction converges quickly
        return math.exp(scale) * _continued_fraction(a, b, x) / a
    return 1 - math.exp(scale) * _continued_fraction(b, a, rest) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function with the method of Lentz."""
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for step in range(1, 10_000):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d, tiny)
            c = _away_from_zero(1 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
