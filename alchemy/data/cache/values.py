"""Values as bytes, and back exactly as they were: the same types, the same numbers. Nothing is ever executed."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

INT64 = range(-(2**63), 2**63)
SIMPLE = "biufcSUmM"  # kinds of numpy dtypes whose bytes are all there is to them
DTYPES = tuple(map(np.dtype, ("|u1", "<u2", "<i4", "<i8")))
TAG = "$"
DEEPEST = 100  # what is nested deeper could be written and not be read, where less of the stack is left


class Unkept(Exception):
    """A value that cannot be written and read back as it was."""


class Kind(NamedTuple):
    """What the bytes of a value are: a flavour, and of arrays the dtype and how many axes they have."""

    flavour: str
    dtype: str = ""
    axes: int = 1

    @property
    def alignment(self) -> int:
        """Where its bytes may begin, so that numbers can be read in place."""
        if self.flavour in ("int", "float") or (self.dtype and self.axes != 1):
            return 8 if not self.dtype else max(8, np.dtype(self.dtype).alignment)
        return np.dtype(self.dtype).alignment if self.dtype else 1


ABSENT = Kind("absent")
CONSTANTS = {"none": None, "false": False, "true": True}


def encode(value: Any) -> tuple[Kind, bytes]:
    """The kind of a value, and its bytes."""
    kind = type(value)
    if value is None or kind is bool:
        return Kind(str(value).lower()), b""
    if kind is int and value in INT64:
        return Kind("int"), struct.pack("<q", value)
    if kind is float:
        return Kind("float"), struct.pack("<d", value)
    if kind is str:
        return Kind("str"), value.encode("utf-8", "surrogatepass")
    if kind is list:
        numbers = _numbers(value)
        if numbers is not None:
            return Kind("list", numbers.dtype.str), numbers.tobytes()
    found = _array(value)
    if found is not None:
        flavour, array = found
        shape = b"" if array.ndim == 1 else struct.pack(f"<{array.ndim}q", *array.shape)
        # the numbers of an array without axes begin at a multiple of 8 too
        return Kind(flavour, array.dtype.str, array.ndim), _padded(shape, array.dtype) + array.tobytes()
    try:
        text = json.dumps(_tagged(value), ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:  # a number of thousands of digits
        raise Unkept(f"a {kind.__name__} ({error})") from None
    return Kind("json"), text.encode("utf-8", "surrogatepass")


Decoder = Callable[[np.ndarray, int, int], Any]  # of all bytes, where the value begins, where it ends


def decoder(kind: Kind, *, views: bool = False) -> Decoder:
    """What reads values of a kind; `views` leaves arrays where they are, so that nobody may change them."""
    if kind.flavour in CONSTANTS or kind == ABSENT:
        constant = CONSTANTS.get(kind.flavour)
        return lambda data, begin, end: constant
    match kind.flavour:
        case "int":
            return lambda data, begin, end: int.from_bytes(data[begin:end].tobytes(), "little", signed=True)
        case "float":
            return lambda data, begin, end: struct.unpack("<d", data[begin:end].tobytes())[0]
        case "str":
            return lambda data, begin, end: data[begin:end].tobytes().decode("utf-8", "surrogatepass")
        case "json":
            return lambda data, begin, end: _untagged(
                json.loads(data[begin:end].tobytes().decode("utf-8", "surrogatepass"))
            )
        case _:
            return _array_decoder(kind, views)


def _array_decoder(kind: Kind, views: bool) -> Decoder:
    dtype = np.dtype(kind.dtype)

    def view(data: np.ndarray, begin: int, end: int) -> np.ndarray:
        if kind.axes == 1:
            return data[begin:end].view(dtype)
        shape = struct.unpack(f"<{kind.axes}q", data[begin : begin + 8 * kind.axes].tobytes())
        begin += len(_padded(bytes(8 * kind.axes), dtype))
        return data[begin:end].view(dtype).reshape(shape)

    match kind.flavour:
        case "list":
            return lambda data, begin, end: view(data, begin, end).tolist()
        case "scalar":
            return lambda data, begin, end: view(data, begin, end)[()]
        case "tensor":
            import torch

            return lambda data, begin, end: torch.from_numpy(view(data, begin, end).copy())
        case _:
            return view if views else lambda data, begin, end: view(data, begin, end).copy()


def _padded(shape: bytes, dtype: np.dtype[Any]) -> bytes:
    return shape + bytes(-len(shape) % dtype.alignment)


def _numbers(values: list[Any]) -> np.ndarray | None:
    """A list of nothing but whole numbers, floats or truths, as an array of the smallest kind that holds them."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return np.array(values, dtype="|b1")
    if kinds == {float}:
        return np.array(values, dtype="<f8")
    if kinds - {int}:
        return None
    low, high = min(values, default=0), max(values, default=0)
    for dtype in DTYPES:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return np.array(values, dtype=dtype)
    return None


def _array(value: Any) -> tuple[str, np.ndarray] | None:
    """Arrays, numbers of numpy and tensors; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
            raise Unkept("a tensor that is sparse, on a device or part of a graph")
        try:
            flavour, array = "tensor", value.resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise Unkept(f"a tensor of {value.dtype}") from None
    elif type(value) in (np.ndarray, np.memmap):
        flavour, array = "array", np.asarray(value)
    elif isinstance(value, np.generic) and not isinstance(value, np.void | np.object_):
        flavour, array = "scalar", np.asarray(value)
    else:
        return None
    if array.dtype.kind not in SIMPLE or not array.dtype.itemsize:
        raise Unkept(f"an array of {array.dtype}")
    return flavour, array


# -- what has no columns: JSON, with a tag where it has no word for a type


def _tagged(value: Any, depth: int = 0) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > DEEPEST:
        raise Unkept(f"a value that is nested more than {DEEPEST} deep")
    tagged = functools.partial(_tagged, depth=depth + 1)
    if kind is list:
        return [tagged(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value) and TAG not in value:
            return {key: tagged(item) for key, item in value.items()}
        return {TAG: ["dict", [[tagged(key), tagged(item)] for key, item in value.items()]]}
    if kind is tuple:
        return {TAG: ["tuple", [tagged(item) for item in value]]}
    if kind in (set, frozenset):
        return {TAG: [kind.__name__, [tagged(item) for item in value]]}
    if kind is bytes:
        return {TAG: ["bytes", base64.b64encode(value).decode("ascii")]}
    found = _array(value)
    if found is None:
        raise Unkept(f"a {kind.__module__}.{kind.__qualname__}")
    flavour, array = found
    content = base64.b64encode(array.tobytes()).decode("ascii")
    return {TAG: [flavour, array.dtype.str, list(array.shape), content]}


BUILDERS: dict[str, Callable[..., Any]] = {
    "dict": lambda rows: {_untagged(key): _untagged(item) for key, item in rows},
    "tuple": lambda items: tuple(map(_untagged, items)),
    "set": lambda items: set(map(_untagged, items)),
    "frozenset": lambda items: frozenset(map(_untagged, items)),
    "bytes": base64.b64decode,
}


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _untagged(item) for key, item in value.items()}
    tag, *rest = value[TAG]
    if tag in BUILDERS:
        return BUILDERS[tag](*rest)
    dtype, shape, content = rest
    array = np.frombuffer(base64.b64decode(content), dtype).reshape(shape).copy()
    if tag == "tensor":
        import torch

        return torch.from_numpy(array)
    return array[()] if tag == "scalar" else array


def kinds_of(rows: list[list[Any]]) -> list[Kind]:
    """Kinds as a manifest has them."""
    return list(itertools.starmap(Kind, rows))
