"""States are restored exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from alchemy.checkpoint.files import json_bytes
from alchemy.checkpoint.state_tree import join_state, split_state
from tests.checkpoint.faults import same_bits
from tests.checkpoint.strategies import tensors

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.binary(),
)
KEYS = st.one_of(st.text(), st.integers(), st.none(), st.binary(), st.tuples(st.integers(), st.text()))
STATES = st.recursive(
    SCALARS | tensors(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(st.sampled_from(["$tensor", "$tuple", "$dict", "a.b", "a"]), inner, max_size=2),
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return same_bits(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)  # also for nan and -0.0
    return bool(one == other)


def there_and_back(state: Any) -> Any:
    taken = split_state(state)
    assert taken.left_out == []
    return join_state(json.loads(json_bytes(taken.json)), taken.tensors)


@settings(max_examples=120)
@given(STATES)
def test_any_state_comes_back_exactly(state: Any) -> None:
    assert same(there_and_back(state), state)


def test_numbers_longer_than_python_prints_come_back() -> None:
    assert there_and_back({"seed": 3**20000, "below": -(2**64)}) == {"seed": 3**20000, "below": -(2**64)}


def test_tied_tensors_are_stored_once_and_come_back_as_one() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3))
    state = {"encoder": weight, "decoder": weight.data, "window": weight[0], "turned": weight.t()}
    taken = split_state(state)
    assert sorted(taken.tensors) == ["encoder", "turned", "window"]
    back = join_state(taken.json, taken.tensors)
    assert back["encoder"] is back["decoder"]
    assert back["turned"].shape == (3, 2)


def test_names_that_look_the_same_are_kept_apart() -> None:
    state = {"a": {0: torch.zeros(1), "0": torch.ones(1)}, "a.0": torch.full((1,), 2.0)}
    taken = split_state(state)
    assert len(taken.tensors) == 3
    assert same(join_state(taken.json, taken.tensors), state)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "hook (object)"),
        (lambda: 0, "hook (function)"),
        ({1, 2}, "hook (set)"),
        (torch.zeros(2).to_sparse(), "hook (torch.float32, torch.sparse_coo, cpu)"),
        (torch.zeros(2, dtype=torch.complex128), "hook (torch.complex128, torch.strided, cpu)"),
        (torch.zeros(2, device="meta"), "hook (torch.float32, torch.strided, meta)"),
    ],
)
def test_other_values_are_named_and_left_out(value: Any, named: str) -> None:
    taken = split_state({"step": 3, "hook": value, "none": None, "list": [1, value]})
    assert taken.left_out == [named, named.replace("hook", "list.1")]
    assert taken.json == {"step": 3, "none": None, "list": [1, None]}


def test_numbers_of_numpy_come_back_as_python_has_them() -> None:
    import numpy

    back = there_and_back({"count": numpy.int64(7), "score": numpy.float64(0.1)})
    assert [type(value) for value in back.values()] == [int, float]
    assert back == {"count": 7, "score": 0.1}
