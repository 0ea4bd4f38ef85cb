"""What becomes a tensor, and how rows of different lengths become one."""

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
# numbers that are nothing but numbers, and what they become in a tensor: floats have torch's own default, so that a
# float in a sample is what the weights of a model are
PLAIN = {int: np.int64, float: np.float32, bool: np.bool_}
NUMBERS = (bool, int, float, np.number, np.bool_)
FLOATS = (float, np.floating)
# of a numpy array as it is; all others become the next that holds their numbers
KEPT = {np.dtype(name) for name in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")}
WIDEST = {"u": np.int64, "f": np.float64, "c": np.complex128}


class Rows(NamedTuple):
    """A field of a batch as one array: the rows of all samples one after another, and how long each of them is."""

    flat: np.ndarray
    lengths: list[int] | None  # None where each sample has a single number

    def pad(
        self, *, value: float = 0, multiple: int = 1, left: bool = False, length: int = 0, name: str = ""
    ) -> Tensor:
        """One tensor, padded to the longest row and to `length` at least; this is rounded up to a multiple."""
        if self.lengths is None:
            return torch.from_numpy(self.flat)
        longest = max(max(self.lengths), length)
        longest += -longest % multiple
        shape = (len(self.lengths), longest, *self.flat.shape[1:])
        if min(self.lengths) == longest:
            return torch.from_numpy(self.flat.reshape(shape))
        out = _full(shape, value, self.flat.dtype, name)
        # all rows at once: one by one would cost more than the numbers do
        out[_real(self.lengths, longest, left)] = self.flat
        return torch.from_numpy(out)

    def cut(self, most: int) -> Rows:
        """At most the first `most` items of every row."""
        if self.lengths is None or max(self.lengths) <= most:
            return self
        places = np.arange(len(self.flat)) - np.repeat(self._starts(), self.lengths)
        return Rows(self.flat[places < most], [min(length, most) for length in self.lengths])

    def shift(self, first: int) -> Rows:
        """What a decoder is given to predict the rows: each time the item before, and `first` before the first one."""
        flat = np.roll(self.flat, 1)
        flat[[start for start, length in zip(self._starts(), self.lengths or [], strict=True) if length]] = first
        return Rows(flat, self.lengths)

    def _starts(self) -> list[int]:
        return list(itertools.accumulate(self.lengths or [], initial=0))[:-1]


def join_rows(name: str, values: Sequence[Any], *, value: float = 0, left: bool = False) -> Rows | None:
    """The values of a field as one array; None for a field without numbers, an error for one that has some.

    `value` and `left` say how arrays are padded that differ in more than their length.
    """
    rows = _join_alike(values)
    return _join_arrays(name, values, value, left) if rows is None else rows


def numbers_if_any(name: str, values: Sequence[Any]) -> list[np.ndarray] | None:
    """The values of a field as arrays; None for a field without numbers, an error for one that has some."""
    arrays = [as_array(value, name, number) for number, value in enumerate(values)]
    found = [array for array in arrays if array is not None]
    if len(found) == len(arrays):
        return found
    if any(array.shape != (0,) for array in found):  # an empty list may be one of texts
        raise no_numbers(name, values)
    return None


def as_array(item: object, name: str = "", number: int = 0) -> np.ndarray | None:
    """Numbers, lists of numbers, arrays and tensors of numbers as an array that torch can take; None for all else."""
    if isinstance(item, Tensor):
        item = _copied(item, name, number)
    if isinstance(item, np.ndarray | np.generic):
        return _plain(np.asarray(item), name, number)
    if not isinstance(item, (*LISTS, *NUMBERS)):
        return None
    kinds = _kinds(item) if isinstance(item, LISTS) else {type(item)}
    return _listed(item, kinds, name, number) if all(issubclass(kind, NUMBERS) for kind in kinds) else None


def _copied(item: Tensor, name: str, number: int) -> np.ndarray:
    known = not item.is_floating_point() or item.dtype in (torch.float16, torch.float32, torch.float64)
    try:
        return (item if known else item.float()).numpy(force=True)  # numpy has no bfloat16
    except (TypeError, RuntimeError, NotImplementedError) as error:
        text = f"{field_at(name, number)} is a tensor of {item.dtype} that cannot be copied: {error}"
        raise AlchemyError(text, hint="give numpy arrays, or dense tensors with numbers in them") from error


def real_places(lengths: Sequence[int], size: int, *, left: bool) -> Tensor:
    """Where the rows of a batch hold what the samples had, and no padding.

    >>> real_places([1, 2], 3, left=True).int().tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return torch.from_numpy(_real(lengths, size, left))


def holds(dtype: torch.dtype, value: float) -> bool:
    """Whether a number stays itself: 0.5 among whole numbers would become 0, and nobody would know."""
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    if dtype == torch.bool:
        return value in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max and value == int(value)


def field_at(name: str, number: int) -> str:
    """How a value is called in messages."""
    return f"the field {name!r} of sample {number}"


def _real(lengths: Sequence[int], size: int, left: bool) -> np.ndarray:
    places, counts = np.arange(size), np.array(lengths)[:, None]
    return places >= size - counts if left else places < counts


def _full(shape: tuple[int, ...], value: float, dtype: np.dtype, name: str) -> np.ndarray:
    if value == 0:
        return np.zeros(shape, dtype)
    if not holds(_torch_dtype(dtype), value):
        text = f"the field {name!r} is {dtype}, which cannot hold the padding {value}"
        raise AlchemyError(text, hint="give this field a value of its own")
    return np.full(shape, float(value) if dtype.kind == "f" else value, dtype)


def _join_alike(values: Sequence[Any]) -> Rows | None:
    """Values that all have one plain type, as nearly all have; None for others, which are looked at one by one."""
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
        except (TypeError, RuntimeError):  # of a kind that numpy does not know, or with a gradient
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
    except ValueError:  # they differ in dimensions, or in more than their length
        return None


def _plain_numbers(items: Sequence[Any], kind: type, alike: bool = False) -> np.ndarray | None:
    """Numbers of one type as torch has them; None where there is one of another type, or too large for it.

    `alike` says that they are known to be of the type.
    """
    try:
        if kind is int:  # an array of integers looks at each itself, and refuses what is none
            return np.frombuffer(packed("q", items), np.int64)
        if kind not in PLAIN or not (alike or list(map(type, items)).count(kind) == len(items)):
            return None
        with np.errstate(over="raise"):
            return np.fromiter(items, PLAIN[kind], len(items))
    except (TypeError, OverflowError, FloatingPointError):
        return None


def _join_arrays(name: str, values: Sequence[Any], value: float, left: bool) -> Rows | None:
    """Values of any type, one by one: what cannot be joined is named."""
    found = numbers_if_any(name, values)
    if found is None:
        return None
    arrays = _of_one_dimension(found, name)
    dtype = _common_dtype(arrays, name)
    if arrays[0].ndim == 0:
        return Rows(np.stack(arrays, dtype=dtype, casting="unsafe"), None)
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        widest = tuple(map(max, zip(*shapes, strict=True)))
        arrays = [_widened(array, _full((len(array), *widest), value, dtype, name), left) for array in arrays]
    return Rows(np.concatenate(arrays, dtype=dtype, casting="unsafe"), list(map(len, arrays)))


def _widened(array: np.ndarray, out: np.ndarray, left: bool) -> np.ndarray:
    """An array in the corner of one that is as large in every dimension, or larger."""
    corner = [slice(size - n, size) if left else slice(n) for n, size in zip(array.shape, out.shape, strict=True)]
    out[tuple(corner)] = array
    return out


def _kinds(items: Sequence[Any]) -> set[type]:
    """The types of what nested lists hold."""
    kinds = set(map(type, items))
    if not any(issubclass(kind, LISTS) for kind in kinds):
        return kinds
    return set().union(*(_kinds(item) if isinstance(item, LISTS) else {type(item)} for item in items))


def _listed(item: object, kinds: set[type], name: str, number: int) -> np.ndarray | None:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise AlchemyError(
            f"{field_at(name, number)} is a list of rows that differ in length: {value_text(item)}",
            hint=f"make rows of one length in a pipe before, or {_keep(name)}",
        ) from error
    if not array.size:
        return array.astype(np.int64)  # an empty list of ids must not turn its batch into floats
    kind = array.dtype.kind
    if kind == "O" or (kind == "f" and not any(issubclass(found, FLOATS) for found in kinds)):
        raise _too_large(name, number, item)
    if array.dtype != np.float64:
        return _plain(array, name, number)
    try:  # torch's own default, so that a float in a sample becomes what a model's weights are
        with np.errstate(over="raise"):
            return array.astype(np.float32)
    except FloatingPointError as error:
        hint = "give a numpy array of float64, if the model can take it"
        raise AlchemyError(f"{field_at(name, number)} is beyond float32: {value_text(item)}", hint=hint) from error


def _plain(array: np.ndarray, name: str, number: int) -> np.ndarray | None:
    """As a type that torch calculates with; None for what is no numbers: texts, dates, objects."""
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


def _of_one_dimension(arrays: Sequence[np.ndarray], name: str) -> Sequence[np.ndarray]:
    dimensions = {array.ndim for array in arrays}
    if len(dimensions) == 1:
        return arrays
    most = max(dimensions)
    arrays = [array.reshape((0,) * most) if array.shape == (0,) else array for array in arrays]
    for number, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise AlchemyError(
                f"samples of one batch differ in dimensions: {field_at(name, number)} has the shape {array.shape}, "
                f"and the first one {arrays[0].shape}",
                hint=f"bring them to the same in a pipe before, or {_keep(name)}",
            )
    return arrays


def _common_dtype(arrays: Sequence[np.ndarray], name: str) -> np.dtype:
    """That of all which have numbers: an empty array is float64 unless somebody thought of it."""
    kinds = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
    common = functools.reduce(torch.promote_types, map(_torch_dtype, kinds))
    dtype = torch.empty(0, dtype=common).numpy().dtype
    if len(kinds) > 1 and common.is_floating_point:
        _check_digits(arrays, dtype, name)
    return dtype


def _check_digits(arrays: Sequence[np.ndarray], dtype: np.dtype, name: str) -> None:
    """Integers beside floats become floats, which do not hold all of them."""
    for number, array in enumerate(arrays):
        with np.errstate(over="ignore", invalid="ignore"):
            same = array.dtype.kind not in "iu" or (array.astype(dtype).astype(array.dtype) == array).all()
        if not same:
            text = f"{field_at(name, number)} has whole numbers that {dtype}, the type of others, cannot hold"
            hint = "give all samples one type in a pipe before"
            raise AlchemyError(f"{text}: {value_text(array.tolist())}", hint=hint)


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def no_numbers(name: str, values: Sequence[Any]) -> AlchemyError:
    """The error of a field that must have numbers, about the first sample that has none."""
    number = next(number for number, value in enumerate(values) if as_array(value, name) is None)
    return AlchemyError(
        f"{field_at(name, number)} is no number and no row of numbers: {value_text(values[number])}",
        hint=f"give all samples numbers in a pipe before, or {_keep(name)}",
    )


def _too_large(name: str, number: int, value: object) -> AlchemyError:
    text = f"{field_at(name, number)} has a whole number beyond int64: {value_text(value)}"
    return AlchemyError(text, hint=f"give a float or a text, or {_keep(name)}")


def value_text(value: object, width: int = 60) -> str:
    """A value in a message, cut where it gets long."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # of a class of the project, or a number of 5000 digits
        text = f"a {type(value).__name__} that cannot be shown: {error}"
    return clip_text(text, width)


def clip_text(text: str, width: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _keep(name: str) -> str:
    return f'keep the list: fields.{name} = {{ type = "alchemy.data.columns.Kept" }}'
