"""Pruning decisions are functions of the curves alone."""

import math

from hypothesis import given
from hypothesis import strategies as st

from alchemy.sweep.pruning import should_prune

CURVES = st.lists(st.lists(st.floats(-1e3, 1e3), max_size=30), max_size=12)


def test_nothing_is_pruned_before_the_first_evaluations():
    others = [[1.0] * 9] * 9
    assert not should_prune("median", [9.0] * 2, others, after=3)
    assert should_prune("median", [9.0] * 3, others, after=3)
    assert not should_prune("asha", [9.0] * 2, others, after=3)


def test_the_median_is_that_of_the_same_evaluation():
    others = [[9.0, 1.0]] * 4
    assert not should_prune("median", [5.0], others)
    assert should_prune("median", [5.0, 5.0], others)


def test_asha_compares_at_its_rungs():
    others = [[9.0, 9.0, 1.0, 1.0]] * 5
    assert not should_prune("asha", [5.0, 5.0], others)
    assert should_prune("asha", [5.0, 5.0, 5.0], others)
    assert should_prune("asha", [5.0] * 20, others)


def test_each_evaluation_is_judged_once():
    others = [[1.0, 9.0]] * 5
    assert should_prune("median", [5.0, 5.0], others)
    assert not should_prune("median", [5.0, 5.0], others, since=1)
    assert not should_prune("asha", [5.0, 5.0], others, since=1)


def test_a_diverged_run_is_hopeless():
    assert should_prune("median", [math.nan], [[1.0]] * 4)


@given(CURVES, st.sampled_from(["median", "asha"]), st.integers(1, 3))
def test_the_best_run_is_never_pruned(others, rule, after):
    assert not should_prune(rule, [-1e4] * 30, others, after=after)


@given(CURVES, st.sampled_from(["median", "asha"]))
def test_without_peers_nothing_is_pruned(others, rule):
    assert not should_prune(rule, [1e4] * 31, [curve[:2] for curve in others][:1])
