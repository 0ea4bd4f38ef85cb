"""Collating samples: padding, stacking, and torch dtypes."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alchemy.data.collate import CollateFn, DefaultCollateFn, Pad
from alchemy.data.columns import Column, Padded
from alchemy.data.loader import get_dataloader
from alchemy.data.padding import Rows
from alchemy.errors import AlchemyError

SAMPLES: list[Any] = [
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
        ({"ids": [1]}, r"expects a list of dicts, got \{'ids': \[1\]\}; put"),
        ([], "expects a list of dicts"),
        ([{"a": 1}, [2]], r"expects samples that are dicts, but sample 1 is \[2\]; convert the samples to dicts"),
        ([{"a": 1}, {"b": 1}], r"sample 1 of a batch differs from the first in the fields \['a', 'b'\]"),
        (
            [{"x": np.zeros(2)}, {"x": np.zeros((2, 2))}],
            "samples of a batch differ in dimensions: the field 'x' of sample 1",
        ),
    ],
)
def test_what_cannot_be_a_batch_is_said(batch, message):
    with pytest.raises(AlchemyError, match=message):
        Pad()(batch)


def test_a_collate_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"CollateFn must define __call__"):
        CollateFn()([])


def fields(samples, **tables):
    return Pad(fields=tables)(samples)


@given(
    rows=st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=6),
    value=st.integers(-2, 6),
    left=st.booleans(),
    multiple=st.sampled_from([1, 2, 3, 8]),
    fixed=st.booleans(),
    kind=st.sampled_from([list, tuple, np.array, lambda row: np.array(row, np.int32), torch.tensor]),
)
def test_without_the_padding_the_samples_are_there_again(rows, value, left, multiple, fixed, kind):
    column = Padded(
        value=value, left=left, multiple=multiple, max_length=24 * fixed, fixed=fixed,
        lengths="n", mask="mask", causal="seen", previous="before", first=9,
    )  # fmt: skip
    # an empty list has no dtype
    batch = column("ids", [kind(row) if row else [] for row in rows])
    ids, mask = batch["ids"], batch["mask"]
    assert [row[keep].tolist() for row, keep in zip(ids, mask.bool(), strict=True)] == rows
    assert (ids[mask == 0] == value).all()
    assert (batch["before"][mask == 0] == value).all()
    assert batch["n"].tolist() == mask.sum(1).tolist() == list(map(len, rows))
    edge = mask.diff(dim=1)
    assert (edge >= 0).all() if left else (edge <= 0).all()
    longest = max(map(len, rows))
    assert ids.shape[1] == (24 if fixed else longest + -longest % multiple)
    assert [row[keep].tolist() for row, keep in zip(batch["before"], mask.bool(), strict=True)] == [
        ([9, *row])[: len(row)] for row in rows
    ]
    for seen, keep in zip(batch["seen"], mask.bool(), strict=True):
        assert torch.equal(seen[keep][:, keep], torch.ones(sum(keep), sum(keep)).tril().bool())
        assert not seen[keep][:, ~keep].any()
        assert seen.diagonal().all()


def test_xlnet_is_padded_in_front_with_a_segment_of_its_own():
    samples: list[Any] = [
        {"input_ids": [7, 8, 4, 3], "token_type_ids": [0, 0, 0, 2], "e1_mask": [0, 1, 0, 0], "label": 1},
        {"input_ids": [7, 3], "token_type_ids": [0, 2], "e1_mask": [1, 0], "label": 0},
    ]
    tables: dict[str, Any] = {
        "input_ids": {"value": 5, "mask": "attention_mask", "max_length": 6, "fixed": True},
        "token_type_ids": {"value": 4, "max_length": 6, "fixed": True},
    }
    batch = Pad(left=True, fields=tables)(samples)
    assert batch["input_ids"].tolist() == [[5, 5, 7, 8, 4, 3], [5, 5, 5, 5, 7, 3]]
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[4, 4, 0, 0, 0, 2], [4, 4, 4, 4, 0, 2]]
    assert batch["e1_mask"].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    assert batch["label"].tolist() == [1, 0]


def test_a_mask_may_mark_the_padding():
    samples = [{"ids": [1, 2]}, {"ids": [3]}]
    batch = fields(samples, ids={"mask": "mask", "causal": "seen", "mask_padding_with_zero": False})
    assert batch["mask"].tolist() == [[0, 0], [0, 1]]
    assert batch["seen"].tolist() == [[[False, True], [False, False]], [[False, True], [False, False]]]


def test_rows_that_are_too_long_are_refused_or_cut():
    samples = [{"ids": [1]}, {"ids": [1, 2, 3]}]
    with pytest.raises(
        AlchemyError, match=r"field 'ids' of sample 1 has 3 items, more than max_length = 2; set max_length"
    ):
        fields(samples, ids={"max_length": 2})
    batch = fields(samples, ids={"max_length": 2, "long": "cut", "lengths": "n"})
    assert batch["ids"].tolist() == [[1, 0], [1, 2]]
    assert batch["n"].tolist() == [1, 2]


def test_fields_take_what_holds_for_all_and_may_say_otherwise():
    samples: list[Any] = [{"ids": [1, 2, 3], "tags": [4], "hot": [1, 0, 1]}]
    batch = Pad(value=-1, multiple=4, fields={"tags": {"value": -100}, "hot": {"multiple": 1}})(samples)
    assert batch["ids"].tolist() == [[1, 2, 3, -1]]
    assert batch["tags"].tolist() == [[4, -100, -100, -100]]
    assert batch["hot"].tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3)])
def test_images_become_floats_with_the_channels_first(shape):
    image = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    batch = fields([{"image": image}, {"image": image + 1}], image={"type": "alchemy.data.columns.Image"})["image"]
    assert batch.dtype == torch.float32
    assert batch.shape == (2, shape[2] if len(shape) == 3 else 1, 2, 3)
    assert batch[1, 0, 1, 2].item() == pytest.approx((image.reshape(2, 3, -1)[1, 2, 0] + 1) / 255)


def test_images_are_standardised_by_channel_and_floats_are_not_scaled():
    table = {"type": "alchemy.data.columns.Image", "layout": "CHW", "mean": [1.0, 0.0], "std": [2.0, 1.0]}
    batch = fields([{"image": np.full((2, 1, 1), 3.0)}], image=table)["image"]
    assert batch.flatten().tolist() == [1.0, 3.0]


def test_spans_are_filled_up_and_counted():
    samples: list[Any] = [{"spans": [[0, 2, "PER"], [3, 4, "LOC"]]}, {"spans": []}, {"spans": [(1, 2, 0)]}]
    table = {"type": "alchemy.data.columns.Spans", "labels": ["LOC", "PER"]}
    batch = fields(samples, spans=table)
    assert batch["spans"].tolist() == [[[0, 2, 1], [3, 4, 0]], [[-1] * 3] * 2, [[1, 2, 0], [-1] * 3]]
    assert batch["spans_count"].tolist() == [2, 0, 1]
    assert fields(samples[1:2], spans=table)["spans"].shape == (1, 0, 3)
    assert fields(samples, spans={"type": "alchemy.data.columns.Kept"})["spans"] == [s["spans"] for s in samples]


def test_read_only_arrays_of_a_mapped_file_are_taken(tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(6).reshape(2, 3))
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    batch = Pad()([{"row": mapped[0], "table": mapped}, {"row": mapped[1][:2], "table": mapped[:1]}])
    assert batch["row"].tolist() == [[0, 1, 2], [3, 4, 0]]
    assert batch["table"][1].tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize(
    ("samples", "table", "message"),
    [
        ([{"x": [1]}, {"x": "two"}], {}, "the field 'x' of sample 1 is not numeric: 'two'"),
        ([{"x": [1]}, {"x": [1, 2]}], {"value": 0.5}, "'x' is int64, which cannot represent the padding value 0.5"),
        (
            [{"x": [True]}, {"x": [True] * 2}],
            {"value": -100},
            "'x' is bool, which cannot represent the padding value -100",
        ),
        ([{"x": 1}], {"mask": "m"}, "the field 'x' contains single numbers, which do not support mask"),
        ([{"x": [1], "y": 1}], {"mask": "y"}, "two fields named 'y', one of them derived from 'x'; rename one of them"),
        ([{"y": 1, "x": [1]}], {"lengths": "y"}, "two fields named 'y', one of them derived from 'x'"),
        ([{"x": [1]}], {"mask": "x"}, "the field itself and mask have the same name 'x'; rename one of them"),
        ([{"x": [1]}], {"mask": "m", "lengths": "m"}, "lengths and mask have the same name 'm'"),
        (
            [{"x": []}],
            {"type": "alchemy.data.columns.Spans", "count": "x"},
            "the field itself and count have the same name 'x'",
        ),
        (
            [{"x": [], "y": 1}],
            {"type": "alchemy.data.columns.Spans", "count": "y"},
            "two fields named 'y', one of them derived from",
        ),
        ([{"x": []}], 5, "fields.x must be a table, not 5"),
        ([{"x": [1]}], {"max_length": 6, "multiple": 4}, "max_length = 6 must be a multiple of multiple = 4"),
        ([{"x": [1]}], {"max_length": -1}, "max_length must be at least 0, not -1"),
        ([{"x": [1]}], {"previous": "p", "first": "eos"}, "first must be an integer or none, not the string 'eos'"),
        ([{"x": [1]}], {"fixed": True}, "fixed = true pads to max_length, which is not set"),
        ([{"x": [1]}], {"long": "drop"}, "long must be one of 'refuse', 'cut', not the string 'drop'"),
        ([{"x": [1]}], {"previous": "p"}, "'previous' and 'first' must be set together"),
        ([{"x": [1]}], {"maks": "m"}, r"\[collate_fn.fields.x\] Padded has no option 'maks'; did you mean 'mask'"),
        ([{"xs": [1]}], {}, "the samples have no field 'x'; did you mean 'xs'"),
        ([{"x": [1]}], {"type": "alchemy.data.columns.Image"}, r"'x' of sample 0 has the shape \(1,\)"),
        (
            [{"x": np.zeros((3, 8, 8))}],
            {"type": "alchemy.data.columns.Image"},
            'seems to be the channels; set layout = "CHW"',
        ),
        (
            [{"x": np.zeros((1, 1), np.uint8)}, {"x": np.zeros((1, 1), np.float32)}],
            {"type": "alchemy.data.columns.Image"},
            "the images of 'x' have the dtypes float32, uint8; convert them to one real dtype",
        ),
        (
            [{"x": np.zeros((1, 2))}, {"x": np.zeros((2, 2))}],
            {"type": "alchemy.data.columns.Image"},
            r"'x' of sample 1 has the shape \(2, 2\), but the first one has \(1, 2\)",
        ),
        (
            [{"x": np.zeros((1, 2, 3))}],
            {"type": "alchemy.data.columns.Image", "std": [1.0]},
            "have 3 channels, but std has 1 numbers; check that their layout is HWC",
        ),
        (
            [{"x": [[1, 2]]}],
            {"type": "alchemy.data.columns.Spans"},
            "'x' of sample 0 is not a list of .start, end, label",
        ),
        (
            [{"x": [[0, 1, "PRE"]]}],
            {"type": "alchemy.data.columns.Spans", "labels": ["PER"]},
            "'x' of sample 0 has the unknown label 'PRE'; did you mean 'PER'",
        ),
        ([{"x": 1}], {"type": "alchemy.data.columns.Image", "scale": 0}, "scale must not be 0"),
        (
            [{"x": 1}],
            {"type": "alchemy.data.columns.Image", "layout": "WHC"},
            "layout must be one of 'HWC', 'CHW', not the string 'WHC'",
        ),
    ],
)
def test_a_field_that_cannot_be_collated_is_named(samples, table, message):
    with pytest.raises(AlchemyError, match=message):
        fields(samples, x=table)


def test_the_tokens_before_are_those_of_the_target():
    assert Rows(np.array([5, 6, 2, 7]), [3, 0, 1]).shift(2).flat.tolist() == [2, 5, 6, 2]
    assert Rows(np.array([], np.int64), [0]).shift(2).flat.tolist() == []


def test_a_column_without_a_call_says_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"Column must define __call__"):
        Column()("x", [])


@pytest.mark.parametrize("name", ["ids", "y"])
def test_the_lengths_take_the_place_of_no_field(name):
    with pytest.raises(AlchemyError, match=f"two fields named {name!r}, one of them set by `lengths`"):
        Pad(lengths=name)([{"ids": [1], "y": 1}])
    with pytest.raises(AlchemyError, match="two fields named 'm', one of them set by `lengths`"):
        Pad(lengths="m", fields={"ids": {"mask": "m"}})([{"ids": [1]}])


def test_the_lengths_are_those_of_the_first_rows_however_they_are_padded():
    samples: list[Any] = [{"y": 1, "ids": [1, 2, 3], "tags": [1]}, {"y": 1, "ids": [4], "tags": [1, 2]}]
    options: Any
    for options in ({}, {"values": {"ids": 3}}, {"fields": {"ids": {"mask": "m"}, "y": {}}}):
        assert Pad(lengths="n", **options)(samples)["n"].tolist() == [3, 1]
    cut = {"ids": {"max_length": 2, "long": "cut"}}
    assert Pad(lengths="n", fields=cut)(samples)["n"].tolist() == [2, 1]


def test_rows_that_are_all_empty_have_no_say_in_the_lengths():
    samples: list[Any] = [{"spans": [], "none": np.zeros(0), "n": [3], "ids": [1, 2]}]
    batch = Pad(lengths="length")(samples)
    assert (batch["spans"], batch["length"].tolist()) == ([[]], [1])
    batch = Pad(lengths="length", values={"ids": 0, "spans": 0})([{**samples[0], "ids": []}])
    assert (batch["spans"].shape, batch["length"].tolist()) == ((1, 0), [0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": {"labls": -100}}, "the samples have no field 'labls'; did you mean 'labels'"),
        ({"values": {"text": 1}}, "the field 'text' of sample 0 is not numeric: 'a'"),
        (
            {"values": {"labels": 1}, "fields": {"labels": {"value": 2}}},
            "values and fields.labels both set the padding of 'labels'",
        ),
        (
            {"values": {"text": 1}, "fields": {"text": {"type": "alchemy.data.columns.Kept"}}},
            "both set the padding of 'text'; keep only fields.text",
        ),
        ({"values": {"labels": "x"}}, "value must be a number, not the string 'x'"),
        ({"multiple": 0}, "multiple must be at least 1, not 0"),
        ({"multiple": 2.5}, "multiple must be an integer, not 2.5"),
    ],
)
def test_values_that_pad_nothing_are_refused(options, message):
    with pytest.raises(AlchemyError, match=message):
        Pad(**options)([{"labels": [1], "text": "a"}])


def test_values_and_fields_say_the_rest_of_one_field_together():
    batch = Pad(values={"ids": 7}, fields={"ids": {"mask": "m"}})([{"ids": [1]}, {"ids": [2, 3]}])
    assert batch["ids"].tolist() == [[1, 7], [2, 3]]
    assert batch["m"].tolist() == [[1, 0], [1, 1]]


class Told(list):
    """Samples with their padding values, as from a tokenizer."""

    def padding(self):
        return {"ids": 5, "gone": 6}


TOLD = Told([{"ids": [1], "tags": [1]}, {"ids": [1, 2], "tags": [1, 2]}])


@pytest.mark.parametrize(
    ("options", "ids", "tags"),
    [
        ({}, 5, 0),
        ({"values": {"tags": -100}}, 5, -100),
        ({"values": {"ids": 9}}, 9, 0),
        ({"value": 0}, 0, 0),
        ({"fields": {"ids": {"mask": "m"}}}, 5, 0),
        ({"fields": {"ids": {"value": 8}}}, 8, 0),
    ],
)
def test_the_padding_is_that_of_the_data_unless_the_config_says_otherwise(options, ids, tags):
    loader = get_dataloader(TOLD, batch_size=2, collate_fn={"type": "alchemy.data.collate.Pad", **options})
    (batch,) = loader
    assert (batch["ids"][0].tolist(), batch["tags"][0].tolist()) == ([1, ids], [1, tags])


def test_a_budget_pads_as_the_data_says():
    (batch,) = get_dataloader(TOLD, max_tokens=9, length_of="ids")
    assert batch["ids"].tolist() == [[1, 5], [1, 2]]


@pytest.mark.parametrize(
    ("collate", "multiple"),
    [
        (DefaultCollateFn(), 1),
        (Pad(), 1),
        (Pad(multiple=8), 8),
        (Pad(multiple=4, fields={"ids": {"multiple": 16}}), 4),
        (Pad(multiple=4, fields={"ids": {"multiple": 16}}).fields["ids"], 16),
        (Pad(multiple=4, values={"ids": 1}).fields["ids"], 4),
        (Pad(fields={"ids": {"max_length": 32, "fixed": True}}).fields["ids"], 32),
        (Pad(fields={"ids": {"max_length": 32}}).fields["ids"], 1),
        (Pad(multiple=4, fields={"ids": {"type": "alchemy.data.columns.Kept"}}).fields["ids"], 1),
    ],
)
def test_a_collate_and_its_columns_say_to_what_they_round_lengths_up(collate, multiple):
    assert collate.multiple == multiple


@pytest.mark.parametrize("rows", [[[]], [[1]], [[1, 2], []], [[1] * 32]])
def test_a_fixed_length_is_that_of_every_batch(rows):
    batch = fields([{"ids": row} for row in rows], ids={"max_length": 32, "fixed": True})
    assert batch["ids"].shape == (len(rows), 32)
