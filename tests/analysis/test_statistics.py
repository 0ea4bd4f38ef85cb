"""The t-tests agree with scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from alchemy.analysis.statistics import incomplete_beta, paired_test, student_p, student_quantile, welch_test

values = st.floats(-100, 100).map(lambda value: round(value, 3))
several = st.lists(values, min_size=2, max_size=12)


# without subnormal x, for which scipy 1.17 is wrong from the sixth digit on
@given(st.floats(0.01, 1000), st.floats(0.01, 1000), st.floats(0, 1, allow_subnormal=False))
def test_the_incomplete_beta_function_is_that_of_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"), [(0.01, 1000, 5e-324, 0.0006300963528215344), (0.01, 2, 1e-320, 0.0006372668469788424)]
)
def test_subnormal_numbers_are_handled(a: float, b: float, x: float, expected: float) -> None:
    """The expected values were computed by mpmath with 40 digits."""
    assert incomplete_beta(a, b, x) == pytest.approx(expected, rel=1e-9)


@given(st.floats(-1e6, 1e6), st.floats(0.5, 1e6))
def test_p_values_are_those_of_scipy(t: float, freedom: float) -> None:
    assert student_p(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-7, abs=1e-14)


@given(st.floats(0.01, 0.999), st.floats(1, 1e4))
def test_quantiles_are_those_of_scipy(confidence: float, freedom: float) -> None:
    assert student_quantile(confidence, freedom) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-7)


@given(several, several)
def test_welch_is_that_of_scipy(one: list[float], other: list[float]) -> None:
    found = welch_test(one, other)
    if found.error < 1e-6 or len(set(one)) == 1 or len(set(other)) == 1:  # scipy warns, or returns NaN
        return
    theirs = stats.ttest_ind(other, one, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert found.freedom == pytest.approx(theirs.df)


@given(st.lists(st.tuples(values, values), min_size=2, max_size=12))
def test_paired_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    one, other = map(list, zip(*pairs, strict=True))
    found = paired_test(one, other)
    if found.error < 1e-6:
        return
    theirs = stats.ttest_rel(other, one)
    interval = theirs.confidence_interval(0.95)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("test", [paired_test, welch_test])
def test_groups_without_spread(test) -> None:
    same, apart = test([1.0, 1.0], [1.0, 1.0]), test([1.0, 1.0], [2.0, 2.0])
    assert (same.mean, same.p, same.low, same.high) == (0, 1, 0, 0)
    assert (apart.mean, apart.p, apart.low, apart.high) == (1, 0, 1, 1)


def test_too_few_values() -> None:
    with pytest.raises(ValueError, match="at least two pairs"):
        paired_test([1.0], [2.0])
    with pytest.raises(ValueError, match="at least two values in each group"):
        welch_test([1.0, 2.0], [2.0])
    with pytest.raises(ValueError, match="between 0 and 1, got 95"):
        student_quantile(95, 3)


def test_extreme_values() -> None:
    assert student_p(math.inf, 3) == 0
    assert student_p(0, 3) == 1
    assert welch_test([1e150, 2e150], [1e-150, 2e-150]).p > 0.1
