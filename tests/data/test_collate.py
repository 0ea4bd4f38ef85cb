"""Samples become batches: padded, stacked, and with the dtypes of torch."""

import numpy as np
import pytest
import torch

from alchemy.data.collate import CollateFn, DefaultCollateFn, Pad
from alchemy.errors import AlchemyError

SAMPLES = [
    {"ids": [1, 2, 3], "label": 0, "score": 0.5, "text": "天气", "tags": ["a", "b"], "empty": []},
    {"ids": [4], "label": 1, "score": 1.0, "text": "", "tags": ["c"], "empty": [7]},
]


def test_pad_makes_tensors_of_numbers_and_leaves_the_rest():
    batch = Pad(values={"ids": 9}, lengths="lengths")(SAMPLES)
    assert batch["ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert batch["ids"].dtype == batch["label"].dtype == batch["empty"].dtype == torch.int64
    assert batch["score"].dtype == torch.float32
    assert batch["lengths"].tolist() == [3, 1]
    assert batch["text"] == ["天气", ""]
    assert batch["tags"] == [["a", "b"], ["c"]]


def test_pad_may_stand_in_front_and_round_lengths_up():
    ids = Pad(left=True, multiple=4)([{"ids": [1, 2, 3, 4, 5]}, {"ids": np.array([6])}])["ids"]
    assert ids.tolist() == [[0, 0, 0, 1, 2, 3, 4, 5], [0] * 7 + [6]]


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_arrays_of_any_dimension_are_padded(make):
    arrays = [make([[1.0, 2.0], [3.0, 4.0]]), make([[5.0, 6.0]])]
    for collate in (Pad(), DefaultCollateFn()):
        batch = collate([{"x": array} for array in arrays])["x"]
        assert batch.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
        assert batch.dtype == torch.as_tensor(arrays[0]).dtype


def test_mixed_dtypes_are_promoted():
    batch = Pad()([{"x": np.array([1], dtype=np.int32)}, {"x": np.array([2.5], dtype=np.float32)}])
    assert batch["x"].dtype == torch.float32


def test_the_default_stacks_arrays_and_keeps_lists():
    batch = DefaultCollateFn(type="alchemy.util.collate_fn.DefaultCollateFn")(
        [{"x": np.arange(n), "n": n} for n in (2, 1)]
    )
    assert batch["x"].tolist() == [[0, 1], [0, 0]]
    assert batch["n"] == [2, 1]


def test_the_default_has_a_short_name():
    assert CollateFn.resolve_registered_module("alchemy.data.collate.Default") is DefaultCollateFn


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"ids": [1]}, "expects a list of samples that are dicts, not dict"),
        ([], "expects a list of samples"),
        ([[1], [2]], "expects a list of samples"),
        ([{"a": 1}, {"b": 1}], r"sample 1 of a batch differs from the first in the fields \['a', 'b'\]"),
        ([{"x": np.zeros(2)}, {"x": np.zeros((2, 2))}], "samples of one batch differ in dimensions"),
    ],
)
def test_what_cannot_be_a_batch_is_said(batch, message):
    with pytest.raises(AlchemyError, match=message):
        Pad()(batch)


def test_a_collate_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"CollateFn must define __call__"):
        CollateFn()([])
