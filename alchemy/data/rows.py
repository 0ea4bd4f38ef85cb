"""What becomes a tensor, and how rows of different lengths become one."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from alchemy.errors import AlchemyError

LISTS = (list, tuple)
NUMBERS = (bool, int, float, np.number, np.bool_)
FLOATS = (float, np.floating)
# of a numpy array as it is; all others become the next that holds their numbers
KEPT = {np.dtype(name) for name in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")}
WIDEST = {"u": np.int64, "f": np.float64, "c": np.complex128}


def numbers(name: str, values: Sequence[Any]) -> list[np.ndarray]:
    """The values of a field as arrays; an error names the sample whose value holds anything but numbers."""
    found = numbers_if_any(name, values)
    if found is None:
        raise _no_numbers(name, values)
    return found


def numbers_if_any(name: str, values: Sequence[Any]) -> list[np.ndarray] | None:
    """The same, but None for a field without numbers; one of numbers and other things is an error."""
    arrays = [as_array(value, name, number) for number, value in enumerate(values)]
    found = [array for array in arrays if array is not None]
    if len(found) == len(arrays):
        return found
    if any(array.shape != (0,) for array in found):  # an empty list may be one of texts
        raise _no_numbers(name, values)
    return None


def as_array(item: Any, name: str = "", number: int = 0) -> np.ndarray | None:
    """Numbers, lists of numbers, arrays and tensors of numbers as an array that torch can take; None for all else."""
    if isinstance(item, np.ndarray):
        return item if item.dtype in KEPT else _plain(item, name, number)
    if isinstance(item, LISTS):
        kinds = _kinds(item)
        return _listed(item, kinds, name, number) if all(issubclass(kind, NUMBERS) for kind in kinds) else None
    if isinstance(item, np.generic):
        return _plain(np.asarray(item), name, number)
    if isinstance(item, NUMBERS):
        return _listed(item, {type(item)}, name, number)
    return _plain(_untensored(item, name, number), name, number) if isinstance(item, Tensor) else None


def stack(
    arrays: Sequence[np.ndarray],
    *,
    value: float = 0,
    multiple: int = 1,
    left: bool = False,
    length: int = 0,
    name: str = "",
) -> Tensor:
    """One tensor of arrays that may differ in length along every dimension; the first gets at least `length`."""
    arrays = _of_one_dimension(arrays, name)
    shapes = [array.shape for array in arrays]
    longest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    if longest:
        longest[0] = max(longest[0], length)
        longest[0] += -longest[0] % multiple  # the length; other dimensions are features, and stay
    dtype = _common_dtype(arrays, name)
    if set(shapes) == {tuple(longest)}:
        value = 0  # there is no padding
    elif not holds(dtype, value):
        text = f"the field {name!r} is {str(dtype).removeprefix('torch.')}, which cannot hold the padding {value}"
        raise AlchemyError(text, hint="give this field a value of its own")
    out = torch.full((len(arrays), *longest), float(value) if dtype.is_floating_point else value, dtype=dtype)
    cells = out.numpy()
    if len(longest) == 1:
        lengths = torch.tensor([len(array) for array in arrays])
        # all rows at once: one by one would cost more than the numbers do
        joined = np.concatenate(arrays, dtype=cells.dtype, casting="unsafe")
        cells[real_places(lengths, longest[0], left=left).numpy()] = joined
    else:
        _fill(cells, arrays, left)
    return out


def real_places(lengths: Tensor, size: int, *, left: bool) -> Tensor:
    """Where the rows of a batch hold what the samples had, and no padding.

    >>> real_places(torch.tensor([1, 2]), 3, left=True).int().tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    places = torch.arange(size)
    return places >= size - lengths[:, None] if left else places < lengths[:, None]


def holds(dtype: torch.dtype, value: float) -> bool:
    """Whether a number stays itself: 0.5 among whole numbers would become 0, and nobody would know."""
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    if dtype == torch.bool:
        return value in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max and value == int(value)


def place(name: str, number: int) -> str:
    """How a value is called in messages."""
    return f"the field {name!r} of sample {number}"


def _kinds(items: Sequence[Any]) -> set[type]:
    """The types of what nested lists hold."""
    kinds = set(map(type, items))
    if not any(issubclass(kind, LISTS) for kind in kinds):
        return kinds
    return set().union(*(_kinds(item) if isinstance(item, LISTS) else {type(item)} for item in items))


def _listed(item: Any, kinds: set[type], name: str, number: int) -> np.ndarray | None:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise AlchemyError(
            f"{place(name, number)} is a list of rows that differ in length: {shown(item)}",
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
        raise AlchemyError(f"{place(name, number)} is beyond float32: {shown(item)}", hint=hint) from error


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


def _untensored(item: Tensor, name: str, number: int) -> np.ndarray:
    if item.dtype.is_floating_point and item.dtype not in (torch.float16, torch.float32, torch.float64):
        item = item.float()  # numpy has no bfloat16
    try:
        return item.numpy(force=True)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        text = f"{place(name, number)} is a tensor of {item.dtype} that cannot be copied: {error}"
        raise AlchemyError(text, hint="give numpy arrays, or dense tensors with numbers in them") from error


def _of_one_dimension(arrays: Sequence[np.ndarray], name: str) -> Sequence[np.ndarray]:
    dimensions = {array.ndim for array in arrays}
    if len(dimensions) == 1:
        return arrays
    most = max(dimensions)
    arrays = [array.reshape((0,) * most) if array.shape == (0,) else array for array in arrays]
    for number, array in enumerate(arrays):
        if array.ndim != arrays[0].ndim:
            raise AlchemyError(
                f"samples of one batch differ in dimensions: {place(name, number)} has the shape {array.shape}, "
                f"and the first one {arrays[0].shape}",
                hint=f"bring them to the same in a pipe before, or {_keep(name)}",
            )
    return arrays


def _fill(out: Any, arrays: Sequence[np.ndarray], left: bool) -> None:
    for row, array in enumerate(arrays):
        window = tuple(
            slice(size - n, size) if left else slice(n) for n, size in zip(array.shape, out.shape[1:], strict=True)
        )
        out[(row, *window)] = array


def _common_dtype(arrays: Sequence[np.ndarray], name: str) -> torch.dtype:
    """That of all which have numbers: an empty array is float64 unless somebody thought of it."""
    kinds = {array.dtype for array in arrays if array.size} or {array.dtype for array in arrays}
    found = [torch.from_numpy(np.empty(0, kind)).dtype for kind in kinds]
    common = functools.reduce(torch.promote_types, found)
    if len(kinds) > 1 and common.is_floating_point:
        _check_survive(arrays, torch.empty(0, dtype=common).numpy().dtype, name)
    return common


def _check_survive(arrays: Sequence[np.ndarray], dtype: np.dtype, name: str) -> None:
    """Whole numbers beside floats become floats, which do not hold all of them."""
    for number, array in enumerate(arrays):
        with np.errstate(over="ignore", invalid="ignore"):
            same = array.dtype.kind not in "iu" or (array.astype(dtype).astype(array.dtype) == array).all()
        if not same:
            text = f"{place(name, number)} has whole numbers that {dtype}, the type of others, cannot hold"
            raise AlchemyError(f"{text}: {shown(array.tolist())}", hint="give all samples one type in a pipe before")


def _no_numbers(name: str, values: Sequence[Any]) -> AlchemyError:
    number = next(number for number, value in enumerate(values) if as_array(value, name) is None)
    return AlchemyError(
        f"{place(name, number)} is no number and no row of numbers: {shown(values[number])}",
        hint=f"give all samples numbers in a pipe before, or {_keep(name)}",
    )


def _too_large(name: str, number: int, value: Any) -> AlchemyError:
    text = f"{place(name, number)} has a whole number beyond int64: {shown(value)}"
    return AlchemyError(text, hint=f"give a float or a text, or {_keep(name)}")


def shown(value: Any, width: int = 60) -> str:
    """A value in a message, cut where it gets long."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # of a class of the project, or a number of 5000 digits
        text = f"a {type(value).__name__} that cannot be shown: {error}"
    return cut(text, width)


def cut(text: str, width: int) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _keep(name: str) -> str:
    return f'keep the list: fields.{name} = {{ type = "alchemy.data.columns.Kept" }}'
