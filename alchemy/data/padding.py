"""Convert values to tensors, and pad rows of different lengths."""

from __future__ import annotations

import functools
import itertools
import math
from array import array as packed
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from alchemy.errors import AlchemyError

LISTS = (list, tuple)
# built-in number types and their dtypes; floats become torch's default dtype, which model weights use
PLAIN = {int: np.int64, float: np.float32, bool: np.bool_}
NUMBERS = (bool, int, float, np.number, np.bool_)
FLOATS = (float, np.floating)
# dtypes of NumPy arrays that are kept; others are converted to the widest dtype of their kind
KEPT = {np.dtype(name) for name in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")}
WIDEST = {"u": np.int64, "f": np.float64, "c": np.complex128}


class Rows(NamedTuple):
    """A field of a batch as one array: the concatenated rows of all samples, and their lengths."""

    flat: np.ndarray
    lengths: list[int] | None  # None if each sample has a single number

    def pad(
        self, *, value: float = 0, multiple: int = 1, left: bool = False, length: int = 0, name: str = ""
    ) -> Tensor:
        """Return a tensor padded to the longest row, but at least to `length`, and to a multiple of `multiple`."""
        if self.lengths is None:
            return torch.from_numpy(self.flat)
        longest = max(max(self.lengths), length)
        longest += -longest % multiple
        shape = (len(self.lengths), longest, *self.flat.shape[1:])
        if min(self.lengths) == longest:
            return torch.from_numpy(self.flat.reshape(shape))
        out = _full(shape, value, self.flat.dtype, name)
        # one assignment for all rows, because a loop would dominate the cost
        out[_real_mask(self.lengths, longest, left)] = self.flat
        return torch.from_numpy(out)

    def cut(self, most: int) -> Rows:
        """Truncate every row to its first `most` items."""
        if self.lengths is None or max(self.lengths) <= most:
            return self
        positions = np.arange(len(self.flat)) - np.repeat(self._starts(), self.lengths)
        return Rows(self.flat[positions < most], [min(length, most) for length in self.lengths])

    def shift(self, first: int) -> Rows:
        """Shift every row right by one and insert `first`; the result is the decoder input for predicting the rows."""
        flat = np.roll(self.flat, 1)
        flat[[start for start, length in zip(self._starts(), self.lengths or [], strict=True) if length]] = first
        return Rows(flat, self.lengths)

    def _starts(self) -> list[int]:
        return list(itertools.accumulate(self.lengths or [], initial=0))[:-1]


def join_rows(name: str, values: Sequence[Any], *, value: float = 0, left: bool = False) -> Rows | None:
    """Return the values of a field as one array, or None if none are numeric; raise if only some are.

    `value` and `left` configure the padding of arrays that differ in more than their length.
    """
    rows = _join_alike(values)
    return _join_arrays(name, values, value, left) if rows is None else rows


def to_arrays(name: str, values: Sequence[Any]) -> list[np.ndarray] | None:
    """Return the values of a field as arrays, or None if none are numeric; raise if only some are."""
    arrays = [as_array(value, name, number) for number, value in enumerate(values)]
    found = [array for array in arrays if array is not None]
    if len(found) == len(arrays):
        return found
    if any(array.shape != (0,) for array in found):  # an empty list may be a list of strings
        raise not_numeric(name, values)
    return None


def as_array(item: object, name: str = "", number: int = 0) -> np.ndarray | None:
    """Convert a number, list, array or tensor to an array that torch accepts; return None for other values."""
    if isinstance(item, Tensor):
        item = _tensor_to_array(item, name, number)
    if isinstance(item, np.ndarray | np.generic):
        return _convert_array(np.asarray(item), name, number)
    if not isinstance(item, (*LISTS, *NUMBERS)):
        return None
    kinds = _collect_types(item) if isinstance(item, LISTS) else {type(item)}
    return _list_to_array(item, kinds, name, number) if all(issubclass(kind, NUMBERS) for kind in kinds) else None


def _tensor_to_array(item: Tensor, name: str, number: int) -> np.ndarray:
    known = not item.is_floating_point() or item.dtype in (torch.float16, torch.float32, torch.float64)
    try:
        return (item if known else item.float()).numpy(force=True)  # NumPy has no bfloat16
    except (TypeError, RuntimeError, NotImplementedError) as error:
        text = f"{field_at(name, number)} is a tensor of {item.dtype} that cannot be copied: {error}"
        raise AlchemyError(text, hint="use NumPy arrays or dense numeric tensors") from error


def real_positions(lengths: Sequence[int], size: int, *, left: bool) -> Tensor:
    """Return a mask of the positions that are not padding.

    >>> real_positions([1, 2], 3, left=True).int().tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return torch.from_numpy(_real_mask(lengths, size, left))


def can_represent(dtype: torch.dtype, value: float) -> bool:
    """Return whether a dtype can represent a number; an integer dtype would silently turn 0.5 into 0."""
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    if dtype == torch.bool:
        return value in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max and value == int(value)


def field_at(name: str, number: int) -> str:
    """Return a description of a sample's field for messages."""
    return f"the field {name!r} of sample {number}"


def _real_mask(lengths: Sequence[int], size: int, left: bool) -> np.ndarray:
    positions, counts = np.arange(size), np.array(lengths)[:, None]
    return positions >= size - counts if left else positions < counts


def _full(shape: tuple[int, ...], value: float, dtype: np.dtype, name: str) -> np.ndarray:
    if value == 0:
        return np.zeros(shape, dtype)
    if not can_represent(_torch_dtype(dtype), value):
        text = f"the field {name!r} is {dtype}, which cannot represent the padding value {value}"
        raise AlchemyError(text, hint="set a different padding value for this field")
    return np.full(shape, float(value) if dtype.kind == "f" else value, dtype)


def _join_alike(values: Sequence[Any]) -> Rows | None:
    """Join values of one built-in or array type, the common case; return None for others, which take a slower path."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind in PLAIN:
        flat = _plain_numbers(values, kind, alike=True)
        return None if flat is None else Rows(flat, None)
    if kind in LISTS:
        items = list(itertools.chain.from_iterable(values))
        flat = _plain_numbers(items, type(items[0])) if items else None
        return None if flat is None else Rows(flat, list(map(len, values)))
    if kind is Tensor:
        try:
            values = [value.numpy() for value in values]
        except (TypeError, RuntimeError):  # a dtype that NumPy does not have, or a tensor that requires grad
            return None
    elif kind is not np.ndarray:
        return None
    return _join_arrays_alike(values)


def _join_arrays_alike(arrays: Sequence[np.ndarray]) -> Rows | None:
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) > 1 or not dtypes <= KEPT:
        return None
    try:
        if arrays[0].ndim == 0:
            return Rows(np.array(arrays), None)
        return Rows(np.concatenate(arrays), list(map(len, arrays)))
    except ValueError:  # different numbers of dimensions, or different sizes beyond the first
        return None


def _plain_numbers(items: Sequence[Any], kind: type, alike: bool = False) -> np.ndarray | None:
    """Return numbers of one type as an array; None if any has a different type or is too large.

    `alike` means that all items are known to have this type.
    """
    try:
        if kind is int:  # array("q") checks the type of each item itself
            return np.frombuffer(packed("q", items), np.int64)
        if kind not in PLAIN or not (alike or list(map(type, items)).count(kind) == len(items)):
            return None
        with np.errstate(over="raise"):
            return np.fromiter(items, PLAIN[kind], len(items))
    except (TypeError, OverflowError, FloatingPointError):
        return None


def _join_arrays(name: str, values: Sequence[Any], value: float, left: bool) -> Rows | None:
    """Join values of any type; raise an error that names the value that cannot be joined."""
    found = to_arrays(name, values)
    if found is None:
        return None
    arrays = _check_dimensions(found, name)
    dtype = _common_dtype(arrays, name)
    if arrays[0].ndim == 0:
        return Rows(np.stack(arrays, dtype=dtype, casting="unsafe"), None)
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        widest = tuple(map(max, zip(*shapes, strict=True)))
        arrays = [_copy_to_corner(array, _full((len(array), *widest), value, dtype, name), left) for array in arrays]
    return Rows(np.concatenate(arrays, dtype=dtype, casting="unsafe"), list(map(len, arrays)))


def _copy_to_corner(array: np.ndarray, out: np.ndarray, left: bool) -> np.ndarray:
    """Copy an array to a corner of another array that is at least as large in every dimension."""
    corner = [slice(size - n, size) if left else slice(n) for n, size in zip(array.shape, out.shape, strict=True)]
    out[tuple(corner)] = array
    return out


def _collect_types(items: Sequence[Any]) -> set[type]:
    """Return the types of the items of nested lists."""
    kinds = set(map(type, items))
    if not any(issubclass(kind, LISTS) for kind in kinds):
        return kinds
    return set().union(*(_collect_types(item) if isinstance(item, LISTS) else {type(item)} for item in items))


def _list_to_array(item: object, kinds: set[type], name: str, number: int) -> np.ndarray | None:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise AlchemyError(
            f"{field_at(name, number)} is a list of rows of different lengths: {value_text(item)}",
            hint=f"make all rows the same length in an earlier pipe, or {_keep_hint(name)}",
        ) from error
    if not array.size:
        return array.astype(np.int64)  # an empty list of ids must not turn its batch into floats
    kind = array.dtype.kind
    if kind == "O" or (kind == "f" and not any(issubclass(found, FLOATS) for found in kinds)):
        raise _too_large(name, number, item)
    if array.dtype != np.float64:
        return _convert_array(array, name, number)
    try:  # torch's default dtype, which model weights use
        with np.errstate(over="raise"):
            return array.astype(np.float32)
    except FloatingPointError as error:
        hint = "use a float64 NumPy array, if the model supports it"
        text = f"{field_at(name, number)} is out of range for float32: {value_text(item)}"
        raise AlchemyError(text, hint=hint) from error


def _convert_array(array: np.ndarray, name: str, number: int) -> np.ndarray | None:
    """Convert an array to a dtype that torch supports; return None for strings, dates and objects."""
    if array.dtype in KEPT:
        return array
    kind = array.dtype.kind
    if kind not in "biufc":
        return None
    native = array.dtype.newbyteorder("=")
    if native in KEPT:
        return array.astype(native)
    if native == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise _too_large(name, number, array.tolist())
    return array.astype(WIDEST[kind])


def _check_dimensions(arrays: Sequence[np.ndarray], name: str) -> Sequence[np.ndarray]:
    dimensions = {array.ndim for array in arrays}
    if len(dimensions) == 1:
        return arrays
    most = max(dimensions)
    arrays = [array.reshape((0,) * most) if array.shape == (0,) else array for array in arrays]
    for number, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise AlchemyError(
                f"samples of a batch differ in dimensions: {field_at(name, number)} has the shape {array.shape}, "
                f"but the first one has {arrays[0].shape}",
                hint=f"make their dimensions equal in an earlier pipe, or {_keep_hint(name)}",
            )
    return arrays


def _common_dtype(arrays: Sequence[np.ndarray], name: str) -> np.dtype:
    """Return the common dtype of all arrays that are not empty; empty arrays are float64 by default."""
    kinds = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
    common = functools.reduce(torch.promote_types, map(_torch_dtype, kinds))
    dtype = torch.empty(0, dtype=common).numpy().dtype
    if len(kinds) > 1 and common.is_floating_point:
        _check_digits(arrays, dtype, name)
    return dtype


def _check_digits(arrays: Sequence[np.ndarray], dtype: np.dtype, name: str) -> None:
    """Raise if integers mixed with floats would lose precision."""
    for number, array in enumerate(arrays):
        with np.errstate(over="ignore", invalid="ignore"):
            same = array.dtype.kind not in "iu" or (array.astype(dtype).astype(array.dtype) == array).all()
        if not same:
            text = f"{field_at(name, number)} has integers that {dtype}, the dtype of other samples, cannot represent"
            hint = "convert all samples to one dtype in an earlier pipe"
            raise AlchemyError(f"{text}: {value_text(array.tolist())}", hint=hint)


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def not_numeric(name: str, values: Sequence[Any]) -> AlchemyError:
    """Return the error for a field that must be numeric, naming the first sample whose value is not."""
    number = next(number for number, value in enumerate(values) if as_array(value, name) is None)
    return AlchemyError(
        f"{field_at(name, number)} is not numeric: {value_text(values[number])}",
        hint=f"convert all samples to numbers in an earlier pipe, or {_keep_hint(name)}",
    )


def _too_large(name: str, number: int, value: object) -> AlchemyError:
    text = f"{field_at(name, number)} has an integer that does not fit into int64: {value_text(value)}"
    return AlchemyError(text, hint=f"use a float or a string, or {_keep_hint(name)}")


def value_text(value: object, width: int = 60) -> str:
    """Return the repr of a value for a message, shortened to `width`."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # a failing __repr__, or an integer of 5000 digits
        text = f"a {type(value).__name__} that cannot be displayed: {error}"
    return clip_text(text, width)


def clip_text(text: str, width: int) -> str:
    """Shorten a string to at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _keep_hint(name: str) -> str:
    return f'keep the list: fields.{name} = {{ type = "alchemy.data.columns.Kept" }}'
