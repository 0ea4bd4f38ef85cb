"""Where the first NaN of a step came from: its batch, or an operation and the line of code that called it."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from alchemy.errors import innermost

# what gives memory as it finds it
UNWRITTEN = ("aten.empty", "aten.new_empty")
# masks are made of infinities on purpose
MASKS = ("aten.full", "aten.masked_fill", "aten.fill", "aten.where", "aten.scalar_tensor", "aten.copy", "aten.neg")
OURS = str(Path(__file__).parents[1]) + os.sep
OF_TORCH = (str(Path(torch.__file__).parent) + os.sep, OURS)
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n +([^\n]+)')
MANY = 20  # samples that are named
FORWARD = "Error detected in"  # how the anomaly detection of torch begins the traceback of the forward call


class _Found(NamedTuple):
    """What was made, by which operation, and the calls that led to it."""

    what: str
    operation: str
    where: str
    trace: str

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"the first {self.what} comes from {self.operation}{place}\n{self.trace}".rstrip()


class NanOrigin(TorchDispatchMode):
    """While it is entered, every operation is asked whether it gave NaN though it was given none.

    Infinities count only where no NaN came of them: attention masks are made of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nan: _Found | None = None
        self.inf: _Found | None = None
        self.backward: _Found | None = None  # of what the anomaly detection of torch says
        self._backwards = 0

    @property
    def found(self) -> str:
        return str(self.nan or self.backward or self.inf or "")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a step: operations of the forward pass are looked at here, those of the backward pass by torch."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with self, torch.autograd.set_detect_anomaly(True):
                    yield
            finally:
                texts = [text for row in told if (text := str(row.message)).startswith(FORWARD)]
                self.backward = _of_backward(texts[0]) if texts else self.backward

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Around a backward pass, whose calls are not in the code of anybody."""
        self._backwards += 1
        try:
            yield
        finally:
            self._backwards -= 1

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._backwards or self.nan is not None or str(func).startswith(UNWRITTEN):
            return func(*args, **kwargs)
        had_nan, had_inf = _holds(torch.isnan, (args, kwargs)), _holds(torch.isinf, (args, kwargs))  # may change them
        out = func(*args, **kwargs)
        if not had_nan and _holds(torch.isnan, out):
            self.nan = _found("NaN", func)
        elif self.inf is None and not had_inf and not str(func).startswith(MASKS) and _holds(torch.isinf, out):
            self.inf = _found("infinity", func)
        return out


@dataclass
class Stain:
    """A tensor of a batch that is not finite, and the samples that it is not finite for, where that can be told."""

    name: str
    what: str
    samples: list[int]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.samples[:MANY])) + (", .." if len(self.samples) > MANY else "")
        of = f" of sample{'s' if len(self.samples) > 1 else ''} {numbers}" if self.samples else ""
        return f"{self.what} in {self.name or 'the tensor'}{of}"


def stains(batch: object, ids: Sequence[int] | None) -> list[Stain]:
    """What is not finite in a batch; `ids` are those of its samples, which the first dimension of a tensor counts.

    >>> stains({"x": torch.tensor([[0.0, 1.0], [float("nan"), 1.0]]), "y": torch.tensor([1, 2])}, [7, 9])
    [Stain(name='x', what='NaN', samples=[9])]
    """
    found = []
    for name, value in _named_leaves(batch):
        good = torch.isfinite(value)
        if not bool(good.all()):
            what = "NaN" if bool(torch.isnan(value).any()) else "infinity"
            by_sample = ids is not None and value.ndim > 0 and len(value) == len(ids)
            rows = (~good).reshape(len(value), -1).any(1).nonzero().flatten().tolist() if by_sample else []
            found.append(Stain(name, what, [ids[row] for row in rows] if ids is not None else []))
    return found


def _named_leaves(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors, arrays and numbers with a point below a value, with the keys that lead to them: `inputs.0`."""
    if isinstance(value, Mapping | list | tuple):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _named_leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, Tensor | float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        tensor = torch.as_tensor(value).detach()
        if tensor.is_floating_point():
            yield name, tensor if tensor.layout == torch.strided else tensor.to_dense()


def _holds(test: Callable[[Tensor], Tensor], values: object) -> bool:
    floats = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point())
    return any(bool(test(leaf).any()) for leaf in floats if not leaf.is_meta and leaf.numel())


def _found(what: str, func: object) -> _Found:
    frames = [(row.filename, row.lineno or 0, row.name, row.line or "") for row in traceback.extract_stack()]
    return _named(what, str(func).removeprefix("aten.").partition(".")[0], frames)


def _of_backward(text: str) -> _Found:
    """What torch says, as text, of an operation whose backward pass gave NaN: its name and the forward call."""
    operation = text.removeprefix(FORWARD).partition(".")[0].strip()
    frames = [(file, int(line), name, code) for file, line, name, code in FRAME.findall(text)]
    return _named("NaN", f"{operation}, of a forward call", frames)


def _named(what: str, operation: str, frames: list[tuple[str, int, str, str]]) -> _Found:
    """Without the frames of torch, of alchemy, and of the command that was typed, which stand above these."""
    first = next((i for i, row in enumerate(frames) if row[0].startswith(OURS)), 0)
    own = [row for row in frames[first:] if not row[0].startswith(OF_TORCH)]
    where = innermost([row[:2] for row in own])
    return _Found(what, operation, where, "".join(traceback.format_list(own)))
