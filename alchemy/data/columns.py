"""One field of all samples of a batch: as padded rows, images, spans, or the list that it is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.registry import Registrable


class Column(Registrable):
    """Makes of the values of one field what the batch has; named as `fields.NAME = { type = ".." }` of a collate."""

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
        multiple: int = 1,
        max_length: int = 0,
        fixed: bool = False,
        long: Literal["refuse", "cut"] = "refuse",
        lengths: str = "",
        mask: str = "",
        mask_padding_with_zero: bool = True,
        causal: str = "",
        previous: str = "",
        first: int | None = None,
    ) -> None:
        _check_lengths(multiple, max_length, fixed, long)
        if (previous == "") != (first is None):
            hint = "name the field of the shifted tokens, and the id that stands first in it, mostly that of <eos>"
            raise AlchemyError("'previous' and 'first' go together", hint=hint)
        self.value, self.left, self.multiple = value, left, multiple
        self.max_length, self.fixed, self.long = max_length, fixed, long
        self.lengths, self.mask, self.mask_padding_with_zero = lengths, mask, mask_padding_with_zero
        self.causal, self.previous, self.first = causal, previous, first

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        arrays = [self._bounded(array, name, number) for number, array in enumerate(numbers(name, values))]
        rows = self._stack(name, arrays)
        if rows.dim() < 2:
            self._check_alone(name)
            return {name: rows}
        made = {name: rows}
        lengths = torch.tensor([len(array) for array in arrays])
        if self.lengths:
            made[self.lengths] = lengths
        if self.previous:
            made[self.previous] = self._stack(name, [shifted(array, self.first) for array in arrays])
        if self.mask or self.causal:
            made |= self._masks(real_places(lengths, rows.shape[1], left=self.left))
        return made

    def _bounded(self, array: np.ndarray, name: str, number: int) -> np.ndarray:
        if not self.max_length or array.ndim == 0 or len(array) <= self.max_length:
            return array
        if self.long == "refuse":
            raise AlchemyError(
                f"{_place(name, number)} has {len(array)} items, more than max_length = {self.max_length}",
                hint='encode it with a max_length, which keeps special tokens, or set long = "cut"',
            )
        return array[: self.max_length]

    def _stack(self, name: str, arrays: list[np.ndarray]) -> Tensor:
        length = self.max_length if self.fixed else 0
        return stack(arrays, value=self.value, multiple=self.multiple, left=self.left, length=length, name=name)

    def _masks(self, real_BT: Tensor) -> dict[str, Tensor]:
        made = {}
        if self.mask:
            made[self.mask] = (real_BT == self.mask_padding_with_zero).long()
        if self.causal:
            made[self.causal] = causal_mask(real_BT) == self.mask_padding_with_zero
        return made

    def _check_alone(self, name: str) -> None:
        wanted = [key for key in ("lengths", "mask", "causal", "previous", "fixed") if getattr(self, key)]
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
        scale: float = 255.0,
        mean: list[float] = [],
        std: list[float] = [],
        layout: Literal["HWC", "CHW"] = "HWC",
    ) -> None:
        if scale == 0 or 0 in std:
            raise AlchemyError("Image: scale and std divide, and cannot be 0")
        if layout not in ("HWC", "CHW"):
            raise AlchemyError(f"Image: layout must be 'HWC' or 'CHW', not {layout!r}")
        self.scale, self.mean, self.std, self.layout = scale, mean, std, layout

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        arrays = numbers(name, values)
        for number, array in enumerate(arrays):
            if array.ndim not in (2, 3):
                raise AlchemyError(f"{_place(name, number)} has the shape {array.shape}, which is none of an image")
            if array.shape != arrays[0].shape:
                text = f"{_place(name, number)} has the shape {array.shape}, and the first one {arrays[0].shape}"
                raise AlchemyError(text, hint="bring images to one size in a pipe before")
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

    def __init__(self, *, value: int = -1, labels: list[str] = [], count: str = "") -> None:
        self.value, self.labels, self.count = value, labels, count
        self.places = {label: place for place, label in enumerate(labels)}

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        arrays = [self._rows(name, number, spans) for number, spans in enumerate(values)]
        count = torch.tensor([len(array) for array in arrays])
        return {name: stack(arrays, value=self.value, name=name), self.count or f"{name}_count": count}

    def _rows(self, name: str, number: int, spans: Any) -> np.ndarray:
        try:
            rows = np.array([[start, end, self._label(label)] for start, end, label in spans], np.int64)
        except (TypeError, ValueError) as error:
            raise AlchemyError(f"{_place(name, number)} is no list of [start, end, label]: {error}") from error
        except KeyError as error:
            word = error.args[0]
            hint = did_you_mean(word, self.labels) or "give `labels` with all there are"
            raise AlchemyError(f"{_place(name, number)} has the unknown label {word!r}", hint=hint) from error
        return rows.reshape(-1, 3)

    def _label(self, label: Any) -> Any:
        return self.places[label] if isinstance(label, str) else label


@Column.register()
class Kept(Column):
    """The values as a list."""

    def __call__(self, name: str, values: list[Any]) -> dict[str, Any]:
        return {name: values}


def numbers(name: str, values: list[Any]) -> list[np.ndarray]:
    """The values of a field as arrays; an error names the sample whose value holds anything but numbers."""
    arrays = []
    for number, value in enumerate(values):
        array = as_array(value)
        if array is None:
            raise AlchemyError(
                f"{_place(name, number)} is no number and no row of numbers: {str(value)[:60]!r}",
                hint="encode texts in a pipe before, or keep the list with alchemy.data.columns.Kept",
            )
        arrays.append(array)
    return arrays


def as_array(item: Any) -> np.ndarray | None:
    """Numbers, lists of numbers, arrays and tensors as an array; None for anything else (texts, ragged lists)."""
    if isinstance(item, Tensor):
        return item.detach().cpu().numpy()
    if isinstance(item, np.ndarray):
        return item if item.dtype.kind in "biufc" else None
    if isinstance(item, bool | int | float | np.generic) or (isinstance(item, list | tuple) and _is_numeric(item)):
        array = np.asarray(item)
        if isinstance(item, list | tuple) and not item:
            array = array.astype(np.int64)  # an empty list of ids must not turn its batch into floats
        # torch's own default, so that a float in a sample becomes what a model's weights are
        return array.astype(np.float32) if array.dtype == np.float64 and not isinstance(item, np.generic) else array
    return None


def stack(
    arrays: Sequence[np.ndarray | Tensor],
    *,
    value: float = 0,
    multiple: int = 1,
    left: bool = False,
    length: int = 0,
    name: str = "",
) -> Tensor:
    """One tensor of arrays that may differ in length along every dimension; the first gets at least `length`."""
    shapes = [tuple(array.shape) for array in arrays]
    for number, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]):
            raise AlchemyError(
                f"samples of one batch differ in dimensions: {_place(name, number)} has the shape {shape}, and the "
                f"first one {shapes[0]}"
            )
    longest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    if longest:
        longest[0] = max(longest[0], length)
        longest[0] += -longest[0] % multiple  # the length; other dimensions are features, and stay
    dtype = _common_dtype(arrays)
    if value and any(list(shape) != longest for shape in shapes):
        _check_holds(value, dtype, name)
    out = torch.full((len(arrays), *longest), value, dtype=dtype)
    if any(isinstance(array, Tensor) for array in arrays):
        _fill(out, [torch.as_tensor(array) for array in arrays], left)
    elif len(longest) == 1:
        lengths = torch.tensor([len(array) for array in arrays])
        # all rows at once: one by one would cost more than the numbers do
        out.numpy()[real_places(lengths, longest[0], left=left).numpy()] = np.concatenate(arrays)
    else:
        _fill(out.numpy(), arrays, left)
    return out


def real_places(lengths: Tensor, size: int, *, left: bool) -> Tensor:
    """Where the rows of a batch hold what the samples had, and no padding.

    >>> real_places(torch.tensor([1, 2]), 3, left=True).int().tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    places = torch.arange(size)
    return places >= size - lengths[:, None] if left else places < lengths[:, None]


def causal_mask(real_BT: Tensor) -> Tensor:
    """Which places each place may look at: itself, and those before it that are no padding."""
    size = real_BT.shape[1]
    before_TT = torch.ones(size, size, dtype=torch.bool).tril()
    # a place of padding sees itself too: a softmax over nothing would be nan
    return (before_TT & real_BT[:, None, :]) | torch.eye(size, dtype=torch.bool)


def shifted(row: np.ndarray, first: int | None) -> np.ndarray:
    """What a decoder is given to predict `row`: each time the token before, and in front of the first one `first`."""
    return np.concatenate((np.array([first], row.dtype), row[:-1])) if len(row) else row


def _fill(out: Any, arrays: Sequence[Any], left: bool) -> None:
    for row, array in enumerate(arrays):
        window = tuple(
            slice(size - n, size) if left else slice(n) for n, size in zip(array.shape, out.shape[1:], strict=True)
        )
        out[(row, *window)] = array


def _common_dtype(arrays: Sequence[np.ndarray | Tensor]) -> torch.dtype:
    kinds: set[Any] = {array.dtype for array in arrays}
    found = [kind if isinstance(kind, torch.dtype) else torch.from_numpy(np.empty(0, kind)).dtype for kind in kinds]
    return functools.reduce(torch.promote_types, found)


def _check_holds(value: float, dtype: torch.dtype, name: str) -> None:
    """A padding of 0.5 among whole numbers would become 0, and nobody would know."""
    if not (dtype.is_floating_point or dtype.is_complex) and torch.tensor(value).to(dtype).item() != value:
        text = f"the field {name!r} is {str(dtype).removeprefix('torch.')}, which cannot hold the padding {value}"
        raise AlchemyError(text, hint="give this field a value of its own")


def _check_lengths(multiple: int, max_length: int, fixed: bool, long: str) -> None:
    if multiple < 1:
        raise AlchemyError(f"Pad: multiple must be at least 1, not {multiple}")
    if max_length < 0 or max_length % multiple:
        raise AlchemyError(f"Pad: max_length = {max_length} is no multiple of {multiple}, to which rows are padded")
    if fixed and not max_length:
        raise AlchemyError("Pad: fixed pads to max_length, which is not given")
    if long not in ("refuse", "cut"):
        raise AlchemyError(f"Pad: long must be 'refuse' or 'cut', not {long!r}")


def _is_numeric(items: Sequence[Any]) -> bool:
    """Whether nested lists hold numbers only and are not ragged."""
    kinds = set(map(type, items))
    if all(issubclass(kind, bool | int | float | np.number) for kind in kinds):
        return True
    if not all(issubclass(kind, list | tuple) for kind in kinds) or len(set(map(len, items))) != 1:
        return False
    return all(map(_is_numeric, items))


def _place(name: str, number: int) -> str:
    return f"the field {name!r} of sample {number}"
