"""Split a state into JSON and tensors, and rebuild it from them without loss."""

from __future__ import annotations

import base64
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# dtypes that safetensors supports, and their safetensors names
DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
}
JSON_INT = 2**53  # larger integers lose digits in other JSON readers; Python rejects more than 4,300 digits

Name = Callable[[tuple[str, ...]], str]


def dotted_name(path: tuple[str, ...]) -> str:
    return ".".join(path)


@dataclass
class Split:
    """A state split into JSON and tensors. `left_out` lists the names of values that are neither."""

    json: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def split_state(state: object, name: Name = dotted_name) -> Split:
    """Split a state into JSON and tensors; `name` maps the path of a tensor to its stored name.

    >>> split = split_state({"step": 3, "betas": (0.9, 0.99), "exp_avg": torch.zeros(2)})
    >>> split.json
    {'step': 3, 'betas': {'$tuple': [0.9, 0.99]}, 'exp_avg': {'$tensor': 'exp_avg'}}
    >>> join_state(split.json, split.tensors)["betas"]
    (0.9, 0.99)
    """
    split = Split()
    split.json = _Splitter(split, name).value(state, ())
    return split


class _Splitter:
    def __init__(self, split: Split, name: Name) -> None:
        self.split, self.name = split, name
        self.seen: dict[tuple[Any, ...], str] = {}  # one name per tensor, so that tied weights are written once

    def value(self, value: object, path: tuple[str, ...]) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) is int and abs(value) <= JSON_INT:  # thousands in the states of random generators
            return value
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, numbers.Integral):
            number = int(value)
            return number if abs(number) <= JSON_INT else {"$int": hex(number)}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": str(float(value))}
        if isinstance(value, bytes):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple):
            items = [self.value(item, (*path, str(i))) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        self.split.left_out.append(f"{dotted_name(path) or 'the state'} ({type(value).__name__})")
        return None

    def _mapping(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> Any:
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        rows = []
        for key, item in value.items():
            label = key if plain else self.value(key, (*path, f"the key {key!r}"))
            encoded = self.value(item, (*path, str(key)))
            # drop the key of a value that cannot be saved, since None would look like an actual value
            if (encoded is not None or item is None) and (label is not None or key is None):
                rows.append((label, encoded))
        return dict(rows) if plain else {"$dict": [list(row) for row in rows]}

    def _tensor(self, tensor: Tensor, path: tuple[str, ...]) -> Any:
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in DTYPES:
            self.split.left_out.append(f"{dotted_name(path)} ({tensor.dtype}, {tensor.layout}, {tensor.device})")
            return None
        tensor = tensor.detach()
        flags = (tensor.is_conj(), tensor.is_neg())  # views that share the same memory
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, *flags)
        if not tensor.numel() or key not in self.seen:
            self.seen[key] = self._unused_name(self.name(path))
            self.split.tensors[self.seen[key]] = tensor
        return {"$tensor": self.seen[key]}

    def _unused_name(self, name: str) -> str:
        """Return an unused name, with a number appended if needed: the keys `0` and `"0"` produce the same name."""
        free, again = name, 1
        while free in self.split.tensors:
            again += 1
            free = f"{name}~{again}"
        return free


def join_state(value: object, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild a state from the output of `split_state`; tied tensors share one tensor again."""
    if isinstance(value, list):
        return [join_state(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((mark, inner),) = value.items()
        if mark in DECODE:
            return DECODE[mark](inner, tensors)
    return {key: join_state(item, tensors) for key, item in value.items()}


DECODE: dict[str, Callable[[Any, Mapping[str, Tensor]], Any]] = {
    "$tensor": lambda name, tensors: tensors[name],
    "$tuple": lambda items, tensors: tuple(join_state(item, tensors) for item in items),
    "$dict": lambda rows, tensors: {join_state(key, tensors): join_state(item, tensors) for key, item in rows},
    "$int": lambda text, _: int(text, 16),
    "$float": lambda text, _: float(text),
    "$bytes": lambda text, _: base64.b64decode(text),
}
