"""Sample lengths: reported by the dataset, or read once; rows stay within the budget, including padding."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from alchemy.data.collate import Pad
from alchemy.data.loader import get_dataloader
from alchemy.data.sample_lengths import lengths_of, memory_of
from alchemy.errors import AlchemyError
from alchemy.seeds import sample_rng


class Counted(Dataset[Any]):
    """Samples of given lengths, with a count of reads."""

    def __init__(self, lengths: list[int]) -> None:
        self.sizes, self.reads = lengths, 0

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads += 1
        return {"x": [7] * self.sizes[index], "y": [7] * (10 - self.sizes[index])}


class Drawing(Counted):
    """Draw random numbers as pipes do; with `cut`, the lengths are random."""

    cut = False

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = int(sample_rng().integers(0, 4))
        random.random()
        np.random.rand()
        torch.rand(1)
        return {"x": [number] * (number if self.cut else self.sizes[index])}


class Telling(Counted):
    """A dataset that knows the lengths of its samples."""

    told: Any = None

    def lengths(self) -> Any:
        return self.told


def plain(lengths: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in lengths.items()}


def test_samples_are_read_once_for_all_loaders_of_a_data_set() -> None:
    data = Counted([3, 1, 2])
    one = get_dataloader(data, 1, max_tokens=6, length_of="x", shuffle=True)
    two = get_dataloader(data, 2, max_tokens=6, length_of="x", shuffle=True)
    assert data.reads == 3
    assert one.index_sampler is not None and two.index_sampler is not None
    assert one.index_sampler.batches is two.index_sampler.batches
    assert len(get_dataloader(data, max_tokens=3, length_of="x")) == 3
    assert data.reads == 3
    data.sizes.append(6)
    assert len(get_dataloader(data, max_tokens=6, length_of="x")) == 3
    assert data.reads == 7


def test_what_was_read_is_forgotten_with_the_data_set() -> None:
    data = Counted([3])
    get_dataloader(data, max_tokens=6, length_of="x")
    assert memory_of(data)
    gone = weakref.ref(data)
    del data
    gc.collect()
    assert gone() is None
    assert memory_of([]) == {}


def test_samples_that_draw_are_read_and_nobody_sees_it() -> None:
    draws = []
    for read in (False, True):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if read:
            assert plain(lengths_of(Drawing([3, 1]), "x")) == {"x": [3, 1]}
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]


def test_lengths_that_are_drawn_are_refused() -> None:
    data = Drawing([3] * 40)
    data.cut = True
    with pytest.raises(
        AlchemyError, match=r"the lengths of sample \d+ depend on random numbers: .*; a token budget needs"
    ):
        get_dataloader(data, max_tokens=8, length_of="x")


def test_the_first_of_several_fields_leads() -> None:
    data = Counted([2, 8, 5])
    assert plain(lengths_of(data, ["y", "x"])) == {"y": [8, 2, 5], "x": [2, 8, 5]}
    orders = {first: list(get_dataloader(data, max_tokens=8, length_of=[first, "xy".strip(first)])) for first in "xy"}
    assert [batch["x"].shape[1] for batch in orders["x"]] == [2, 5, 8]
    assert [batch["x"].shape[1] for batch in orders["y"]] == [8, 5, 2]


def test_a_data_set_that_tells_its_lengths_is_not_read() -> None:
    data = Telling([1, 2])
    data.told = {"x": np.array([5, 6]), "z": np.array([1, 1])}
    assert plain(lengths_of(data)) == {"x": [5, 6], "z": [1, 1]}
    assert plain(lengths_of(data, ["z", "x"])) == {"z": [1, 1], "x": [5, 6]}
    assert data.reads == 0
    assert plain(lengths_of(data, "y")) == {"y": [9, 8]}  # it does not report lengths
    data.told = {"x": np.array([2, 2])}
    one, two = (get_dataloader(data, seed, max_tokens=4) for seed in (1, 2))
    assert len(one) == 1
    assert one.index_sampler is not None and two.index_sampler is not None
    assert one.index_sampler.batches is two.index_sampler.batches
    data.told = {"x": np.array([4, 4])}
    assert len(get_dataloader(data, max_tokens=4)) == 2


@pytest.mark.parametrize("column", [[1], [1, -1], [1.0, 2.0], ["a", "b"], [[1], [2]]])
def test_lengths_that_cannot_be_are_refused(column: Any) -> None:
    data = Telling([1, 2])
    data.told = {"x": column}
    with pytest.raises(
        AlchemyError, match=r"Telling\.lengths\(\) returned .* for 'x'; return one non-negative integer for"
    ):
        lengths_of(data)


@pytest.mark.parametrize("names", [3, [], [""], [1], {"x": 1}])
def test_names_of_fields_are_names(names: Any) -> None:
    with pytest.raises(AlchemyError, match=r"length_of(\.0)? must (be a string or a list of|not be empty)"):
        get_dataloader(Counted([1]), max_tokens=4, length_of=names)
    with pytest.raises(AlchemyError, match=r"tokens_of must be a string or none, not the list \['x'\]"):
        get_dataloader(Counted([1]), max_tokens=4, length_of="x", tokens_of=["x"])


def test_a_sample_that_cannot_be_read_is_told() -> None:
    class Broken(Counted):
        def __getitem__(self, index: int) -> dict[str, Any]:
            raise OSError("the disk is gone")

    with pytest.raises(AlchemyError, match="OSError: the disk is gone"):
        get_dataloader(Broken([1]), max_tokens=4, length_of="x")


def test_nothing_where_none_was_given() -> None:
    assert len(get_dataloader(Counted([1, 2]), batch_size=2, max_tokens=None, length_of=None)) == 1


FIELDS = st.sampled_from([{}, {"multiple": 2}, {"multiple": 8}, {"max_length": 12, "fixed": True, "multiple": 4}])


@given(
    lengths=st.lists(st.integers(0, 10), min_size=1, max_size=40),
    multiple=st.sampled_from([1, 2, 4]),
    fields=st.fixed_dictionaries({}, optional={"x": FIELDS, "y": FIELDS}),
    max_tokens=st.integers(16, 60),
    tokens_of=st.sampled_from(["", "x", "y"]),
)
def test_no_batch_is_over_budget_however_a_collate_pads(
    lengths: list[int], multiple: int, fields: dict[str, Any], max_tokens: int, tokens_of: str
) -> None:
    collate = Pad(multiple=multiple, fields=fields)
    options: dict[str, Any] = {"max_tokens": max_tokens, "length_of": ["x", "y"], "collate_fn": collate}
    options |= {"tokens_of": tokens_of} if tokens_of else {}
    loader = get_dataloader(Counted(lengths), **options)
    rows = 0
    for batch in loader:
        counted = [np.asarray(batch[name]).size for name in (tokens_of or "xy")]  # a list, if all are empty
        assert max(counted) <= max_tokens
        rows += len(batch["x"])
    assert rows == len(lengths)


def test_a_sample_whose_padding_is_over_budget_is_told() -> None:
    options: dict[str, Any] = {"max_tokens": 10, "length_of": "x", "collate_fn": Pad(multiple=8)}
    with pytest.raises(AlchemyError, match="sample 1 has 9 tokens, more than the limit of 8"):
        get_dataloader(Counted([8, 9]), **options)
    with pytest.raises(AlchemyError, match="max_tokens = 10 is less than multiple = 16"):
        get_dataloader(Counted([8, 9]), **options | {"collate_fn": Pad(fields={"x": {"multiple": 16}})})
