"""Which values become tensors, which stay lists, and which are rejected."""

from enum import IntEnum

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.collate import DefaultCollateFn, Pad
from alchemy.data.columns import Padded, Spans
from alchemy.data.padding import can_represent, to_arrays
from alchemy.errors import AlchemyError
from alchemy.registry import construct

Color = IntEnum("Color", ["RED"])


def batch_of(*values, collate=None):
    return (collate or Pad())([{"x": value} for value in values])["x"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([np.array([1], np.uint16), np.array([65535, 2], np.uint16)], torch.int64, [[1, 0], [65535, 2]]),
        ([np.array([2**32 - 1], np.uint32), np.array([1])], torch.int64, [[2**32 - 1], [1]]),
        ([np.array([2**62], np.uint64), [-1]], torch.int64, [[2**62], [-1]]),
        ([torch.tensor([7], dtype=torch.uint16), torch.tensor([1])], torch.int64, [[7], [1]]),
        ([np.uint16(3), 4], torch.int64, [3, 4]),
        ([np.array([1, 2], ">i4"), np.array([3], "<i4")], torch.int32, [[1, 2], [3, 0]]),
        ([np.array([0.5], ">f8")], torch.float64, [[0.5]]),
        ([np.array([0.5], np.longdouble)], torch.float64, [[0.5]]),
        ([torch.tensor([1.5], dtype=torch.bfloat16), torch.tensor([0.5, 2])], torch.float32, [[1.5, 0], [0.5, 2]]),
        ([torch.tensor([0.5], requires_grad=True)], torch.float32, [[0.5]]),
        ([np.array(3), np.array(4)], torch.int64, [3, 4]),
        ([torch.tensor(3), 4, np.int64(5)], torch.int64, [3, 4, 5]),
        ([np.array([]), np.array([2**53 + 1])], torch.int64, [[0], [2**53 + 1]]),
        ([[], [[1, 2], [3, 4]]], torch.int64, [[[0, 0], [0, 0]], [[1, 2], [3, 4]]]),
        ([[[], []], [[1]]], torch.int64, [[[0], [0]], [[1], [0]]]),
        ([np.zeros((0, 2)), np.ones((1, 2))], torch.float64, [[[0, 0]], [[1, 1]]]),
        ([[np.bool_(True)], [False, True]], torch.bool, [[True, False], [False, True]]),
        ([[True], [2]], torch.int64, [[1], [2]]),
        ([[1], [0.5]], torch.float32, [[1], [0.5]]),
        ([[Color.RED], [3]], torch.int64, [[1], [3]]),
        ([[float("inf")], [1]], torch.float32, [[float("inf")], [1]]),
        ([np.array([1, 2, 3])[::-1]], torch.int64, [[3, 2, 1]]),
    ],
    ids=str,
)
def test_numbers_of_every_type_become_a_tensor(values, dtype, expected):
    batch = batch_of(*values)
    assert batch.dtype == dtype
    assert batch.tolist() == expected


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        [None, None],
        [np.str_("a"), np.str_("b")],
        [np.datetime64("2020-01-01")],
        [np.array(["2020-01-01"], "M8[D]"), np.array(["2021-01-01", "2022-01-01"], "M8[D]")],
        [np.array(["a", "b"]), np.array(["c"])],
        [np.array([1, None], dtype=object)],
        [[], ["a"]],
        [[[0, 1, "PER"]], []],
        [[], ()],
        [{"a": 1}, {"b": 2}],
        [b"a", b"b"],
        [{1}, {2}],
    ],
    ids=str,
)
@pytest.mark.parametrize("collate", [Pad(), DefaultCollateFn()], ids=["Pad", "Default"])
def test_what_is_no_numbers_stays_a_list(values, collate):
    assert batch_of(*values, collate=collate) is not values
    assert all(got is value for got, value in zip(batch_of(*values, collate=collate), values, strict=True))


NO_NUMBERS = "the field 'x' of sample 1 is not numeric: "
REFUSED = [
    (
        [1, None],
        NO_NUMBERS + r"None; convert all samples to numbers in an earlier pipe, or keep the list: fields\.x = ",
    ),
    ([1, "two"], NO_NUMBERS + "'two'"),
    ([[1, 2], [1, None]], NO_NUMBERS + r"\[1, None\]"),
    ([[1], ["a" * 99]], NO_NUMBERS + r"\['a{55}\.\.\."),
    ([np.array([1]), np.array([1, None], dtype=object)], NO_NUMBERS + "array"),
    ([np.array([1]), np.array(["a"])], NO_NUMBERS + "array"),
    ([0.5, np.datetime64("2020-01-01")], NO_NUMBERS),
    (
        [1, 2**63],
        "'x' of sample 1 has an integer that does not fit into int64: 9223372036854775808; use a float or a string",
    ),
    ([2**64], "'x' of sample 0 has an integer that does not fit into int64"),
    ([[2**63, -1]], "'x' of sample 0 has an integer that does not fit into int64"),
    ([[1], np.array([2**64 - 1], np.uint64)], "'x' of sample 1 has an integer that does not fit into int64"),
    ([1.0, 1e300], r"'x' of sample 1 is out of range for float32: 1e\+300; use a float64 NumPy array"),
    (
        [[[1], [2]], [[1], [2, 3]]],
        r"'x' of sample 1 is a list of rows of different lengths: \[\[1\], \[2, 3\]\]; make",
    ),
    ([[1, [2]]], "'x' of sample 0 is a list of rows of different lengths"),
    ([1, [1]], r"'x' of sample 1 has the shape \(1,\), but the first one has \(\); make their dimensions equal"),
    ([1, []], r"differ in dimensions: the field 'x' of sample 1 has the shape \(0,\), but the first one has \(\)"),
    ([np.array([100000], np.int32), np.array([0.5], np.float16)], r"integers that float16, .* represent: \[100000\]"),
    (
        [0.5, 2**24 + 1],
        "'x' of sample 1 has integers that float32, the dtype of other samples, cannot represent: 16777217",
    ),
    ([torch.ones(2).to_sparse()], "'x' of sample 0 is a tensor of torch.float32 that cannot be copied"),
    ([torch.ones(2, device="meta")], "'x' of sample 0 is a tensor of torch.float32 that cannot be copied"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_is_neither_is_refused_with_its_field_and_sample(values, message):
    with pytest.raises(AlchemyError, match=message):
        batch_of(*values)


def test_the_default_takes_lists_beside_arrays_and_refuses_the_rest():
    assert batch_of(np.array([1, 2]), [3], collate=DefaultCollateFn()).tolist() == [[1, 2], [3, 0]]
    with pytest.raises(AlchemyError, match="sample 1 is not numeric: None"):
        batch_of(np.array([1]), None, collate=DefaultCollateFn())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2) | st.binary(max_size=2)
    | st.sampled_from([np.uint64(2**64 - 1), np.str_("a"), np.array([1.0], ">f4"), np.array([]), torch.tensor([True])]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=2),
)  # fmt: skip


@given(
    st.lists(ANYTHING, min_size=1, max_size=3), st.sampled_from([Pad(), Pad(left=True, value=0.5), DefaultCollateFn()])
)
def test_any_values_become_a_tensor_or_a_list_or_one_error(values, collate):
    told = "the field 'x'"
    try:
        column = batch_of(*values, collate=collate)
    except AlchemyError as error:
        column, told = values, str(error)
    assert "the field 'x'" in told
    assert len(column) == len(values)
    assert isinstance(column, torch.Tensor | list)


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (torch.int8, 127, True), (torch.int8, 300, False), (torch.uint8, -100, False), (torch.int64, 2**63, False),
        (torch.int64, 0.5, False), (torch.int64, 2.0, True), (torch.int64, float("inf"), False),
        (torch.int64, float("nan"), False), (torch.bool, 1, True), (torch.bool, -100, False),
        (torch.float16, 65504, True), (torch.float16, -1e9, False), (torch.float16, float("-inf"), True),
        (torch.float32, float("nan"), True), (torch.float32, 1e300, False), (torch.float64, 2**1023, True),
    ],
)  # fmt: skip
def test_a_padding_must_fit_the_type_of_its_rows(dtype, value, held):
    assert can_represent(dtype, value) is held
    rows = [torch.zeros(1, dtype=dtype), torch.zeros(2, dtype=dtype)]
    if held:
        assert batch_of(*rows, collate=Pad(value=value)).dtype == dtype
    else:
        with pytest.raises(
            AlchemyError, match=f"'x' is .*{dtype!s:.6}".replace("torch.", "") + ".*cannot represent the padding value"
        ):
            batch_of(*rows, collate=Pad(value=value))


def test_a_padding_that_is_not_needed_is_not_asked_to_fit():
    for rows in ([np.array([1], np.uint8)] * 2, [np.uint8(1)] * 2):
        assert batch_of(*rows, collate=Pad(value=-100)).dtype == torch.uint8
    with pytest.raises(
        AlchemyError, match="'x' is uint8, which cannot represent the padding value -100; set a different padding value"
    ):
        batch_of(np.array([1], np.uint8), collate=Pad(value=-100, multiple=2))


def test_a_padding_is_a_number():
    with pytest.raises(AlchemyError, match="value must be a number, not the string 'pad'"):
        construct(Padded, {"value": "pad"})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [np.array([1], np.int8)],
            "'x' has rows of int8 with 1 dimensions; 'previous' needs one dimension and a dtype that",
        ),
        ([[[1, 2]]], "'x' has rows of int64 with 2 dimensions"),
    ],
)
def test_what_has_no_tokens_before_is_said(rows, message):
    with pytest.raises(AlchemyError, match=message):
        Padded(previous="before", first=300)("x", rows)


def test_the_tokens_before_have_the_type_of_their_batch():
    made = Padded(previous="before", first=300)("x", [np.array([1, 2], np.int8), np.array([3])])
    assert made["before"].tolist() == [[300, 1], [300, 0]]


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ([0.7, 2, 1], "'x' of sample 0 is not a list of .start, end, label.: 'float' object cannot be interpreted"),
        ([0, 2, 1.0], "'float' object cannot be interpreted as an integer"),
        ([0, np.float64(2), 1], "cannot be interpreted as an integer"),
        ([0, None, 1], "'NoneType' object cannot be interpreted"),
        ([0, 2**70, 1], "'x' of sample 0 is not a list of .start, end, label.: Python int too large"),
    ],
)
def test_spans_are_of_whole_numbers(span, message):
    with pytest.raises(AlchemyError, match=message):
        Spans()("x", [[span]])
    assert Spans()("x", [[[np.int32(0), np.uint8(2), 1]]])["x"].tolist() == [[[0, 2, 1]]]


def test_labels_of_spans_differ():
    with pytest.raises(AlchemyError, match="labels must not contain duplicates"):
        Spans(labels=["PER", "LOC", "PER"])


def test_numbers_if_any_tells_a_field_without_numbers():
    assert to_arrays("x", ["a", []]) is None
    assert [array.tolist() for array in to_arrays("x", [1, (2,)])] == [1, [2]]
