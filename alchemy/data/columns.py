"""One field of all samples of a batch: as padded rows, images, spans, or the list that it is."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from alchemy.constraints import Distinct, NonNegativeInt, NotZero, PositiveInt
from alchemy.data.padding import Rows, field_at, holds, join_rows, no_numbers, numbers_if_any, real_places
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable

CHANNELS = (1, 3, 4)  # of images that are grey, of colors, or of colors that may be seen through


class Column(Registrable):
    """Makes of the values of one field what the batch has; named as `fields.NAME = { type = ".." }` of a collate."""

    multiple = 1  # to which lengths are rounded up

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        """What the batch gets for the field `name`, and beside it what else is made of its values."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, name, values)")


@Column.register()
class Padded(Column):
    """Rows of numbers, padded to the longest, or with `fixed` to `max_length`; numbers become a vector.

    `lengths`, `mask`, `causal` and `previous` name further fields that are made of the rows.
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
        _check_apart(self.further)

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        made = self.pad(name, values)
        if made is None:
            raise no_numbers(name, values)
        return made

    def pad(self, name: str, values: list[Any]) -> dict[str, Any] | None:
        """The same, but None for a field without numbers."""
        rows = join_rows(name, values, value=self.value, left=self.left)
        if rows is None:
            return None
        if rows.lengths is None:
            self._check_alone(name)
            return {name: rows.pad()}
        if self.max_length:
            rows = self._bounded(rows, name)
        made = {name: self._pad(rows, name)}
        return made | self._further(name, rows, made[name]) if self.further else made

    def _bounded(self, rows: Rows, name: str) -> Rows:
        for number, length in enumerate(rows.lengths or []):
            if length > self.max_length and self.long == "refuse":
                raise AlchemyError(
                    f"{field_at(name, number)} has {length} items, more than max_length = {self.max_length}",
                    hint='encode it with a max_length, which keeps special tokens, or set long = "cut"',
                )
        return rows.cut(self.max_length)

    def _pad(self, rows: Rows, name: str) -> Tensor:
        length = self.max_length if self.fixed else 0
        return rows.pad(value=self.value, multiple=self.multiple, left=self.left, length=length, name=name)

    def _further(self, name: str, rows: Rows, padded: Tensor) -> dict[str, Tensor]:
        _check_apart({"the field itself": name} | self.further)
        made, lengths = {}, rows.lengths or []
        if self.lengths:
            made[self.lengths] = torch.tensor(lengths)
        if self.previous:
            made[self.previous] = self._previous(name, rows, padded)
        if self.mask or self.causal:
            made |= self._masks(real_places(lengths, padded.shape[1], left=self.left))
        return made

    def _previous(self, name: str, rows: Rows, padded: Tensor) -> Tensor:
        if self.first is None or padded.dim() != 2 or not holds(padded.dtype, self.first):
            kind = str(padded.dtype).removeprefix("torch.")
            text = f"the field {name!r} has rows of {kind} in {padded.dim() - 1} dimensions"
            raise AlchemyError(text, hint=f"'previous' needs one dimension, and a type that holds first = {self.first}")
        return self._pad(rows.shift(self.first), name)

    def _masks(self, real_BT: Tensor) -> dict[str, Tensor]:
        made = {}
        if self.mask:
            made[self.mask] = (real_BT == self.mask_padding_with_zero).long()
        if self.causal:
            made[self.causal] = _causal_mask(real_BT) == self.mask_padding_with_zero
        return made

    def _check_alone(self, name: str) -> None:
        wanted = [*self.further, *(["fixed"] if self.fixed else [])]
        if wanted:
            raise AlchemyError(f"the field {name!r} holds single numbers, which have no {', '.join(wanted)}")


@Column.register()
class Image(Column):
    """Images of one size as floats `[batch, channels, height, width]`: those of bytes are divided by `scale`.

    `layout` tells how each is laid out; one of two dimensions has one channel. Then `mean` is taken off and divided
    by `std`, one number for each channel.
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
        arrays = numbers_if_any(name, values)
        if arrays is None:
            raise no_numbers(name, values)
        for number, array in enumerate(arrays):
            if array.ndim not in (2, 3):
                raise AlchemyError(f"{field_at(name, number)} has the shape {array.shape}, which is none of an image")
            if array.shape != arrays[0].shape:
                text = f"{field_at(name, number)} has the shape {array.shape}, and the first one {arrays[0].shape}"
                raise AlchemyError(text, hint="bring images to one size in a pipe before")
        shape = arrays[0].shape
        if self.layout == "HWC" and len(shape) == 3 and shape[0] in CHANNELS and shape[2] not in CHANNELS:
            text = f"{field_at(name, 0)} has the shape {shape}, which seems to have the channels in front"
            raise AlchemyError(text, hint='set layout = "CHW", as it is with `scale = true` of the pipe')
        images = np.stack(arrays)
        kinds = {array.dtype for array in arrays}
        if len(kinds) > 1 or images.dtype.kind == "c":
            told = ", ".join(sorted(map(str, kinds)))
            raise AlchemyError(f"the images of {name!r} are {told}", hint="bring them to one type in a pipe before")
        floats = images.astype(np.float32)
        if images.dtype == np.uint8:
            floats /= self.scale
        if images.ndim == 3:
            images_BCHW = floats[:, None]
        else:
            images_BCHW = floats.transpose(0, 3, 1, 2) if self.layout == "HWC" else floats
        return {name: torch.from_numpy(np.ascontiguousarray(self._standard(name, images_BCHW)))}

    def _standard(self, name: str, images_BCHW: np.ndarray) -> np.ndarray:
        channels = images_BCHW.shape[1]
        for key, row in (("mean", self.mean), ("std", self.std)):
            if row and len(row) != channels:
                text = f"the images of the field {name!r} have {channels} channels, and {key} has {len(row)} numbers"
                raise AlchemyError(text, hint=f"is their layout {self.layout}?")
        mean, std = (np.array(row or [neutral], np.float32) for row, neutral in ((self.mean, 0), (self.std, 1)))
        return (images_BCHW - mean[:, None, None]) / std[:, None, None]


@Column.register()
class Spans(Column):
    """Lists of `[start, end, label]` as `[batch, most, 3]`, filled up with `value`, and how many there are as `count`.

    Labels are numbers, or words of the list `labels`, whose places are their numbers. The name of the field of counts
    is that of the field and `_count`, unless `count` gives another.
    """

    def __init__(self, *, value: int = -1, labels: Annotated[list[str], Distinct()] = [], count: str = "") -> None:
        self.value, self.labels, self.count = value, labels, count
        self.places = {label: place for place, label in enumerate(labels)}

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        _check_apart({"the field itself": name, "count": self.count})
        arrays = [self._rows(name, number, spans) for number, spans in enumerate(values)]
        rows = Rows(np.concatenate(arrays), list(map(len, arrays)))
        return {name: rows.pad(value=self.value, name=name), self.count or f"{name}_count": torch.tensor(rows.lengths)}

    def _rows(self, name: str, number: int, spans: Any) -> np.ndarray:
        try:
            # operator.index takes whole numbers only: 0.7 would become 0
            found = [[operator.index(start), operator.index(end), self._label(label)] for start, end, label in spans]
            rows = np.array(found, np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise AlchemyError(f"{field_at(name, number)} is no list of [start, end, label]: {error}") from error
        except KeyError as error:
            word = error.args[0]
            hint = did_you_mean(word, self.labels) or "give `labels` with all there are"
            raise AlchemyError(f"{field_at(name, number)} has the unknown label {word!r}", hint=hint) from error
        return rows.reshape(-1, 3)

    def _label(self, label: Any) -> int:
        return self.places[label] if isinstance(label, str) else operator.index(label)


@Column.register()
class Kept(Column):
    """The values as a list."""

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        return {name: values}


def _causal_mask(real_BT: Tensor) -> Tensor:
    """Which places each place may look at: itself, and those before it that are no padding."""
    size = real_BT.shape[1]
    before_TT = torch.ones(size, size, dtype=torch.bool).tril()
    # a place of padding sees itself too: a softmax over nothing would be nan
    return (before_TT & real_BT[:, None, :]) | torch.eye(size, dtype=torch.bool)


def _check_apart(fields: dict[str, str]) -> None:
    """Further fields need names of their own: the last of a name would take the place of the others."""
    for key, field in fields.items():
        others = [other for other, name in fields.items() if name == field and other != key]
        if others:
            raise AlchemyError(f"{key} and {others[0]} have the same name {field!r}", hint="rename one of them")
