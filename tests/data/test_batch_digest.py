"""The hash of a batch: equal only for equal contents, and never an error."""

from __future__ import annotations

import copy
import datetime
import pickle
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loguru import logger

from alchemy.data.batch_digest import content_digest, warned


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class Sample:
    text: str
    labels: Any
    other: Any = None


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


DIFFERENT = [
    (np.float32(1), np.float32(2)),
    (np.float32(1), np.float64(1)),
    (np.bool_(True), np.bool_(False)),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-02")),
    (np.array([1, 2]), np.array([1, 3])),
    (objects("a", [1]), objects("a", [2])),
    (objects(Sample("a", 1)), objects(Sample("a", 2))),
    (np.array((1, "a"), dtype=[("n", int), ("o", object)]), np.array((1, "b"), dtype=[("n", int), ("o", object)])),
    (torch.tensor([1 + 2j]), torch.tensor([1 - 2j])),
    (torch.tensor([1 + 2j]), torch.tensor([1 + 2j]).conj()),
    (torch.tensor(True), torch.tensor(False)),
    (torch.tensor([], dtype=torch.int8), torch.tensor([[]], dtype=torch.int8)),
    (torch.ones(2).bfloat16(), torch.ones(2).half()),
    ({1, 2}, {1, 3}),
    (frozenset("ab"), frozenset("ac")),
    (Slotted(1), Slotted(2)),
    (Sample("a", torch.ones(1)), Sample("a", torch.zeros(1))),
    (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    (Path("a/b"), Path("a/c")),
    (1 + 2j, 1 + 3j),
    ({"a": 1}, {"b": 1}),
    ([{"a": 1}, {}], [{}, {"a": 1}]),
    ("1", 1),
    (int, str),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_equal_contents_and_no_others_have_an_equal_digest(one: Any, other: Any) -> None:
    first = content_digest(one)
    assert len(first) == 16
    assert content_digest(copy.deepcopy(one)) == first
    assert content_digest(pickle.loads(pickle.dumps(one))) == first  # as a worker sends it
    assert content_digest([one, one]) == content_digest([one, copy.deepcopy(one)])
    assert content_digest(other) != first


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_a_sparse_tensor_has_a_digest(layout: torch.layout) -> None:
    one, again, other = (
        content_digest(torch.tensor([[0.0, value], [1.0, 0.0]]).to_sparse(layout=layout)) for value in (1.0, 1.0, 2.0)
    )
    assert one == again != other
    assert len(one) == 16


def test_the_order_of_a_set_does_not_count() -> None:
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert content_digest(one) == content_digest(other)


def cyclic(number: int) -> Any:
    sample = Sample("a", [number])
    sample.other = [sample]
    return sample


def test_a_sample_may_point_to_itself() -> None:
    assert content_digest(cyclic(1)) == content_digest(cyclic(1)) != content_digest(cyclic(2))


def test_what_cannot_be_digested_is_said_once_and_is_no_error() -> None:
    warned.clear()
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]))
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    try:
        for _ in range(3):
            assert content_digest({"x": threading.Lock()}) == b""
            assert content_digest(torch.ones(1, device="meta")) == b""
            assert content_digest(deep) == b""
    finally:
        logger.remove(sink)
    lock, *others = lines
    assert lock == "cannot hash a batch for the ledger: TypeError: cannot pickle '_thread.lock' object"
    assert [line.split(": ")[1] for line in others] == ["NotImplementedError", "RecursionError"]
