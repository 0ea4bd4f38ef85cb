"""Every method proposes new points of the space, as a pure function of the points so far."""

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.sweep.proposers import freeze, list_neighbors, propose
from alchemy.sweep.settings import METHODS
from alchemy.sweep.space import Choice, Range, Space
from tests.sweep.spaces import spaces

OWN = ("random", "sobol", "annealing")
QUICK = settings(max_examples=40, deadline=None)


def search(method, space, seed, count, value, history=()):
    """Return the points of a sweep whose runs end at once; `value` is None for a failed run."""
    rows = list(history)
    while len(rows) < count and (point := propose(method, space, seed, rows, count)) is not None:
        rows.append((point, value(point)))
    return rows


def score(point):
    """A value that depends on the point only; some points fail."""
    number = sum(map(ord, repr(freeze(point)))) % 17
    return None if number == 3 else float(number)


@pytest.mark.parametrize("method", [*OWN, "hill_climbing"])
@given(data=st.data(), seed=st.integers(0, 99))
@QUICK
def test_every_point_is_new_and_lies_in_the_space(method, data, seed):
    space = data.draw(spaces(discrete=method == "hill_climbing"))
    points = [point for point, _ in search(method, space, seed, 12, score)]
    assert all(space.contains(point) for point in points)
    assert len(set(map(freeze, points))) == len(points) == space.count_points(12)


@pytest.mark.parametrize("method", [*OWN, "hill_climbing"])
@given(data=st.data(), seed=st.integers(0, 99), cut=st.integers(0, 11))
@QUICK
def test_a_truncated_history_continues_with_the_same_points(method, data, seed, cut):
    space = data.draw(spaces(discrete=method == "hill_climbing"))
    rows = search(method, space, seed, 12, score)
    assert search(method, space, seed, 12, score, rows[:cut]) == rows


@given(space=spaces(discrete=True))
@QUICK
def test_a_grid_visits_every_point_once(space):
    points = [freeze(point) for point, _ in search("grid", space, 0, 10**4, score)]
    assert len(points) == len(set(points))
    assert set(points) == set(map(freeze, space.list_points()))


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
@given(data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_the_samplers_of_optuna_keep_the_promises_too(method, data, seed):
    space = data.draw(spaces(numeric=2))
    rows = search(method, space, seed, 15, score)
    assert all(space.contains(point) for point, _ in rows)
    assert search(method, space, seed, 15, score, rows[:7]) == rows


@pytest.mark.parametrize("method", [name for name in METHODS if name != "grid"])
def test_another_seed_gives_other_points(method):
    space = Space((Choice("a", range(50)), Choice("b", range(50))))
    one, other = (search(method, space, seed, 5, score) for seed in (0, 1))
    assert one != other


@pytest.mark.parametrize("method", METHODS)
def test_points_that_are_still_running_are_not_proposed_again(method):
    space = Space((Choice("a", (1, 2, 3)), Choice("b", (1, 2))))
    rows = search(method, space, 0, 10, lambda point: None)
    assert len({freeze(point) for point, _ in rows}) == 6
    assert propose(method, space, 0, rows, 10) is None


@pytest.mark.parametrize("method", ["annealing", "hill_climbing", "tpe"])
def test_the_optimum_of_a_known_discrete_function_is_found(method):
    space = Space((Choice("a", range(16)), Choice("b", range(16)), Choice("c", ("x", "y", "z"))))

    def bowl(point):
        return (point["a"] - 11) ** 2 + (point["b"] - 4) ** 2 + 5.0 * (point["c"] != "y")

    rows = search(method, space, 1, 120, bowl)
    assert min(value for _, value in rows) == 0


def test_neighbors_differ_in_one_key():
    space = Space((Choice("a", (1, 2, 3)), Choice("c", ("x", "y", "z")), Choice("d", (7, 8), {"c": ("x",)})))
    found = list(list_neighbors(space, {"a": 1, "c": "y"}))
    assert found == [{"a": 2, "c": "y"}, {"a": 1, "c": "x", "d": 7}, {"a": 1, "c": "z"}]


def test_sobol_points_are_even():
    space = Space((Range("x", 0.0, 1.0),))
    points = [float(point["x"]) for point, _ in search("sobol", space, 3, 16, score)]
    assert sorted(int(x * 16) for x in points) == list(range(16))
    assert list(islice(space.list_points(), 0)) == []
