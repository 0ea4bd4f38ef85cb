"""Spaces, points and conditions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.config.tree import Document, Table
from alchemy.errors import Problem
from alchemy.sweep.proposers import propose
from alchemy.sweep.read_space import SpaceReader, sort_dimensions
from alchemy.sweep.space import Choice, Point, Range, Space
from alchemy.sweep.study import describe_dimension
from tests.sweep.spaces import spaces

DEPTH = Choice("depth", (2, 4))
DROPOUT = Range("dropout", 0.0, 0.5, when={"depth": (4,)})
SPACE = Space((DEPTH, DROPOUT))


def test_a_key_whose_condition_does_not_hold_is_missing():
    assert SPACE.build_point([0.0, 0.5]) == {"depth": 2}
    assert SPACE.build_point([0.9, 0.5]) == {"depth": 4, "dropout": 0.25}
    assert not SPACE.contains({"depth": 2, "dropout": 0.1})
    assert not SPACE.contains({"depth": 4})
    assert not SPACE.contains({"depth": 4, "dropout": 0.6})


def test_every_value_is_probed_where_its_condition_holds():
    assert list(SPACE.probe_points()) == [
        {"depth": 2},
        {"depth": 4, "dropout": 0.0},
        {"depth": 4, "dropout": 0.0},
        {"depth": 4, "dropout": 0.5},
    ]


@pytest.mark.parametrize("method", ["random", "annealing", "hill_climbing", "tpe", "cmaes"])
def test_a_long_range_is_never_listed(method):
    space = Space((Choice("a", range(10**12)), Choice("b", range(0, 10**15, 7))))
    history: list[tuple[Point, float | None]] = []
    for value in range(20):
        point = propose(method, space, 0, history, 20)
        assert point is not None and space.contains(point)
        history.append((point, float(value)))


def test_evenly_spaced_integers_are_exact():
    table = Table({"int": [1_000_000, 1_000_010], "points": 3})
    reader = SpaceReader(Document(), (), [])
    reader.add("n", table, "")
    assert list(reader.dimensions["n"].values) == [1_000_000, 1_000_005, 1_000_010]


@given(spaces(), st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_points_lie_in_the_space(space, places):
    assert space.contains(space.build_point(places[: len(space.dimensions)]))
    assert all(space.contains(point) for point in space.probe_points())


@given(st.sampled_from([Range("x", 1e-5, 1.0, log=True), Range("n", 1, 99, log=True, integer=True)]), st.floats(0, 1))
def test_values_of_a_range_have_a_place(dimension, place):
    value = dimension.from_unit(place)
    assert dimension.contains(value)
    assert abs(dimension.to_unit(value) - place) <= 0.25  # an integer owns a part of the range


@given(spaces())
def test_a_space_is_read_back_from_its_description(space):
    problems: list[Problem] = []
    reader = SpaceReader(Document(), (), problems)
    for dimension in space.dimensions:
        reader.add(dimension.key, Table(describe_dimension(dimension)), "study.json")
    again = Space(tuple(sort_dimensions(reader.dimensions, reader.where, problems)))
    assert not problems
    assert list(again.probe_points()) == list(space.probe_points())
    assert again.continuous == space.continuous
