"""Columns: collate the values of one field into padded rows, images, spans or a list."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from alchemy.constraints import Distinct, NonNegativeInt, NotZero, PositiveInt
from alchemy.data.padding import Rows, can_represent, field_at, join_rows, not_numeric, real_positions, to_arrays
from alchemy.data.stacked import StackedValues
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable

CHANNELS = (1, 3, 4)  # grayscale, RGB, RGBA
CACHED = 2**16  # floats that are computed at once, because they fit into the cache of a processor


class Column(Registrable):
    """Base class for columns, which collate one field; set in a collate function as `fields.NAME = { type = ".." }`."""

    multiple = 1  # lengths are rounded up to a multiple of this

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        """Return the batch entry for the `name` field, and any additional fields derived from its values."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, name, values)")


@Column.register()
class Padded(Column):
    """Pads rows of numbers to the longest row, or to `max_length` if `fixed`; single numbers become a vector.

    `lengths`, `mask`, `causal` and `previous` name additional fields that are derived from the rows.
    """

    def __init__(
        self,
        *,
        value: float = 0,
        left: bool = False,
        multiple: PositiveInt = 1,
        max_length: NonNegativeInt = 0,
        fixed: bool = False,
        long: Literal["refuse", "cut"] = "refuse",
        lengths: str = "",
        mask: str = "",
        mask_padding_with_zero: bool = True,
        causal: str = "",
        previous: str = "",
        first: int | None = None,
    ) -> None:
        self.value, self.left = value, left
        self.multiple = max_length if fixed else multiple
        self.max_length, self.fixed, self.long = max_length, fixed, long
        self.lengths, self.mask, self.mask_padding_with_zero = lengths, mask, mask_padding_with_zero
        self.causal, self.previous, self.first = causal, previous, first
        further = {"lengths": lengths, "mask": mask, "causal": causal, "previous": previous}
        self.further = {key: field for key, field in further.items() if field}
        _check_distinct(self.further)

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        made = self.pad(name, values)
        if made is None:
            raise not_numeric(name, values)
        return made

    def pad(self, name: str, values: list[Any]) -> dict[str, Any] | None:
        """Like `__call__`, but return None if the field is not numeric."""
        rows = join_rows(name, values, value=self.value, left=self.left)
        if rows is None:
            return None
        if rows.lengths is None:
            self._check_scalar(name)
            return {name: rows.pad()}
        if self.max_length:
            rows = self._limit_length(rows, name)
        made = {name: self._pad(rows, name)}
        return made | self._derive_fields(name, rows, made[name]) if self.further else made

    def _limit_length(self, rows: Rows, name: str) -> Rows:
        for number, length in enumerate(rows.lengths or []):
            if length > self.max_length and self.long == "refuse":
                raise AlchemyError(
                    f"{field_at(name, number)} has {length} items, more than max_length = {self.max_length}",
                    hint='set max_length when encoding, which keeps special tokens, or set long = "cut"',
                )
        return rows.cut(self.max_length)

    def _pad(self, rows: Rows, name: str) -> Tensor:
        length = self.max_length if self.fixed else 0
        return rows.pad(value=self.value, multiple=self.multiple, left=self.left, length=length, name=name)

    def _derive_fields(self, name: str, rows: Rows, padded: Tensor) -> dict[str, Tensor]:
        _check_distinct({"the field itself": name} | self.further)
        made, lengths = {}, rows.lengths or []
        if self.lengths:
            made[self.lengths] = torch.tensor(lengths)
        if self.previous:
            made[self.previous] = self._shift(name, rows, padded)
        if self.mask or self.causal:
            made |= self._make_masks(real_positions(lengths, padded.shape[1], left=self.left))
        return made

    def _shift(self, name: str, rows: Rows, padded: Tensor) -> Tensor:
        if self.first is None or padded.dim() != 2 or not can_represent(padded.dtype, self.first):
            kind = str(padded.dtype).removeprefix("torch.")
            text = f"the field {name!r} has rows of {kind} with {padded.dim() - 1} dimensions"
            hint = f"'previous' needs one dimension and a dtype that can represent first = {self.first}"
            raise AlchemyError(text, hint=hint)
        return self._pad(rows.shift(self.first), name)

    def _make_masks(self, real_BT: Tensor) -> dict[str, Tensor]:
        made = {}
        if self.mask:
            made[self.mask] = (real_BT == self.mask_padding_with_zero).long()
        if self.causal:
            made[self.causal] = _causal_mask(real_BT) == self.mask_padding_with_zero
        return made

    def _check_scalar(self, name: str) -> None:
        wanted = [*self.further, *(["fixed"] if self.fixed else [])]
        if wanted:
            text = f"the field {name!r} contains single numbers, which do not support {', '.join(wanted)}"
            raise AlchemyError(text)


@Column.register()
class Image(Column):
    """Stacks images of the same size as floats `[batch, channels, height, width]`; byte values are divided by `scale`.

    `layout` is the layout of each image; an image with two dimensions has one channel. After scaling, `mean` is
    subtracted and the result is divided by `std`; both have one number per channel.
    """

    def __init__(
        self,
        *,
        scale: Annotated[float, NotZero()] = 255.0,
        mean: list[float] = [],
        std: list[Annotated[float, NotZero()]] = [],
        layout: Literal["HWC", "CHW"] = "HWC",
    ) -> None:
        self.scale, self.mean, self.std, self.layout = scale, mean, std, layout

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        images = _stack_images(name, values)
        shape = images.shape[1:]
        if self.layout == "HWC" and len(shape) == 3 and shape[0] in CHANNELS and shape[2] not in CHANNELS:
            text = f"{field_at(name, 0)} has the shape {shape}; its first dimension seems to be the channels"
            raise AlchemyError(text, hint='set layout = "CHW", the layout of a pipe with `scale = true`')
        if images.ndim == 3:
            images = images[:, None]
        elif self.layout == "HWC":
            images = images.transpose(0, 3, 1, 2)
        mean, std = self._get_statistics(name, images.shape[1])
        floats_BCHW = np.empty(images.shape, np.float32)
        step = max(CACHED // images[0].size, 1)
        for begin in range(0, len(images), step):
            floats = floats_BCHW[begin : begin + step]
            floats[:] = images[begin : begin + step]
            if images.dtype == np.uint8:
                floats /= self.scale
            if mean is not None:
                floats -= mean
            if std is not None:
                floats /= std
        return {name: torch.from_numpy(floats_BCHW)}

    def _get_statistics(self, name: str, channels: int) -> list[np.ndarray | None]:
        """Return the mean and the standard deviation, each as an array that broadcasts, or None if not set."""
        for key, row in (("mean", self.mean), ("std", self.std)):
            if row and len(row) != channels:
                text = f"the images of the field {name!r} have {channels} channels, but {key} has {len(row)} numbers"
                raise AlchemyError(text, hint=f"check that their layout is {self.layout}")
        return [np.array(row, np.float32)[:, None, None] if row else None for row in (self.mean, self.std)]


@Column.register()
class Mask(Column):
    """Stacks masks of the same size, arrays `[height, width]` of class ids, as int64 `[batch, height, width]`."""

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        masks = _stack_images(name, values)
        if masks.ndim != 3 or masks.dtype.kind not in "bui":
            text = f"{field_at(name, 0)} has the dtype {masks.dtype} and the shape {masks.shape[1:]}"
            raise AlchemyError(text, hint="a mask is an array [height, width] of class ids")
        return {name: torch.from_numpy(masks.astype(np.int64))}


@Column.register()
class Spans(Column):
    """Pads lists of `[start, end, label]` with `value` to `[batch, longest, 3]` and adds a field with their counts.

    Labels are integers, or strings that are replaced by their index in `labels`. The counts are stored in a field
    named after the original one with `_count` appended, unless `count` sets the name.
    """

    def __init__(self, *, value: int = -1, labels: Annotated[list[str], Distinct()] = [], count: str = "") -> None:
        self.value, self.labels, self.count = value, labels, count
        self.indices = {label: index for index, label in enumerate(labels)}

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        _check_distinct({"the field itself": name, "count": self.count})
        arrays = [self._to_array(name, number, spans) for number, spans in enumerate(values)]
        rows = Rows(np.concatenate(arrays), list(map(len, arrays)))
        return {name: rows.pad(value=self.value, name=name), self.count or f"{name}_count": torch.tensor(rows.lengths)}

    def _to_array(self, name: str, number: int, spans: Any) -> np.ndarray:
        try:
            # operator.index only accepts integers; int() would turn 0.7 into 0
            triples = [
                [operator.index(start), operator.index(end), self._label_index(label)] for start, end, label in spans
            ]
            rows = np.array(triples, np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise AlchemyError(f"{field_at(name, number)} is not a list of [start, end, label]: {error}") from error
        except KeyError as error:
            label = error.args[0]
            hint = did_you_mean(label, self.labels) or "list all labels in `labels`"
            raise AlchemyError(f"{field_at(name, number)} has the unknown label {label!r}", hint=hint) from error
        return rows.reshape(-1, 3)

    def _label_index(self, label: Any) -> int:
        return self.indices[label] if isinstance(label, str) else operator.index(label)


@Column.register()
class Kept(Column):
    """Keeps the values as a list."""

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        return {name: values}


def _stack_images(name: str, values: list[Any]) -> np.ndarray:
    """Return images or masks as one array; raise if they differ in size or dtype."""
    if isinstance(values, StackedValues) and values.array.dtype == np.uint8 and values.array.ndim in (3, 4):
        return values.array
    arrays = to_arrays(name, values)
    if arrays is None:
        raise not_numeric(name, values)
    for number, array in enumerate(arrays):
        if array.ndim not in (2, 3):
            raise AlchemyError(f"{field_at(name, number)} has the shape {array.shape}; expected 2 or 3 dimensions")
        if array.shape != arrays[0].shape:
            text = f"{field_at(name, number)} has the shape {array.shape}, but the first one has {arrays[0].shape}"
            raise AlchemyError(text, hint="resize the images to one size in an earlier pipe")
    images = np.stack(arrays)
    kinds = {array.dtype for array in arrays}
    if len(kinds) > 1 or images.dtype.kind == "c":
        dtypes = ", ".join(sorted(map(str, kinds)))
        text = f"the images of {name!r} have the dtypes {dtypes}"
        raise AlchemyError(text, hint="convert them to one real dtype in an earlier pipe")
    return images


def _causal_mask(real_BT: Tensor) -> Tensor:
    """Return a mask of the positions each position may attend to: itself and all earlier ones except padding."""
    size = real_BT.shape[1]
    before_TT = torch.ones(size, size, dtype=torch.bool).tril()
    # padding attends to itself, because a softmax over an empty set would be NaN
    return (before_TT & real_BT[:, None, :]) | torch.eye(size, dtype=torch.bool)


def _check_distinct(fields: dict[str, str]) -> None:
    """Raise if two fields have the same name."""
    for key, field in fields.items():
        others = [other for other, name in fields.items() if name == field and other != key]
        if others:
            raise AlchemyError(f"{key} and {others[0]} have the same name {field!r}", hint="rename one of them")
