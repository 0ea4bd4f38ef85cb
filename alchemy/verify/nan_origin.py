"""Find the origin of the first NaN in a step: its batch, or an operation and the line that called it."""

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

# operations that return uninitialized memory
UNINITIALIZED = ("aten.empty", "aten.new_empty")
# operations that create infinities on purpose, for masks
MASKS = ("aten.full", "aten.masked_fill", "aten.fill", "aten.where", "aten.scalar_tensor", "aten.copy", "aten.neg")
OUR_FOLDER = str(Path(__file__).parents[1]) + os.sep
LIBRARY_FOLDERS = (str(Path(torch.__file__).parent) + os.sep, OUR_FOLDER)
FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n +([^\n]+)')
MAX_LISTED = 20  # maximum number of samples listed
ANOMALY_PREFIX = "Error detected in"  # start of the forward traceback in torch's anomaly detection


class _Found(NamedTuple):
    """A non-finite value, the operation that produced it, and its traceback."""

    what: str
    operation: str
    where: str
    trace: str

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"the first {self.what} comes from {self.operation}{place}\n{self.trace}".rstrip()


class NanOrigin(TorchDispatchMode):
    """A dispatch mode that finds the first operation that returns NaN without NaN in its inputs.

    Infinities are reported only if no NaN follows, because attention masks contain infinities.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nan: _Found | None = None
        self.inf: _Found | None = None
        self.backward: _Found | None = None  # from torch's anomaly detection
        self._backwards = 0

    @property
    def found(self) -> str:
        return str(self.nan or self.backward or self.inf or "")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a step: the forward pass with this mode, the backward pass with torch's anomaly detection."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with self, torch.autograd.set_detect_anomaly(True):
                    yield
            finally:
                texts = [text for row in caught if (text := str(row.message)).startswith(ANOMALY_PREFIX)]
                self.backward = _parse_anomaly(texts[0]) if texts else self.backward

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause during a backward pass, whose operations have no traceback in user code."""
        self._backwards += 1
        try:
            yield
        finally:
            self._backwards -= 1

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._backwards or self.nan is not None or str(func).startswith(UNINITIALIZED):
            return func(*args, **kwargs)
        had_nan, had_inf = (
            _contains(torch.isnan, (args, kwargs)),
            _contains(torch.isinf, (args, kwargs)),
        )  # checked before the call, which may modify its inputs
        out = func(*args, **kwargs)
        if not had_nan and _contains(torch.isnan, out):
            self.nan = _locate("NaN", func)
        elif self.inf is None and not had_inf and not str(func).startswith(MASKS) and _contains(torch.isinf, out):
            self.inf = _locate("infinity", func)
        return out


@dataclass
class NonFinite:
    """A non-finite tensor in a batch, and the ids of the affected samples, if known."""

    name: str
    what: str
    samples: list[int]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.samples[:MAX_LISTED])) + (", .." if len(self.samples) > MAX_LISTED else "")
        of = f" of sample{'s' if len(self.samples) > 1 else ''} {numbers}" if self.samples else ""
        return f"{self.what} in {self.name or 'the tensor'}{of}"


def find_nonfinite(batch: object, ids: Sequence[int] | None) -> list[NonFinite]:
    """Return the non-finite tensors of a batch; `ids` are the sample ids along the first dimension of the tensors.

    >>> find_nonfinite({"x": torch.tensor([[0.0, 1.0], [float("nan"), 1.0]]), "y": torch.tensor([1, 2])}, [7, 9])
    [NonFinite(name='x', what='NaN', samples=[9])]
    """
    found = []
    for name, value in _named_leaves(batch):
        good = torch.isfinite(value)
        if not bool(good.all()):
            what = "NaN" if bool(torch.isnan(value).any()) else "infinity"
            by_sample = ids is not None and value.ndim > 0 and len(value) == len(ids)
            rows = (~good).reshape(len(value), -1).any(1).nonzero().flatten().tolist() if by_sample else []
            found.append(NonFinite(name, what, [ids[row] for row in rows] if ids is not None else []))
    return found


def _named_leaves(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all floating-point tensors, arrays and numbers in a nested value with their dotted paths (`inputs.0`)."""
    if isinstance(value, Mapping | list | tuple):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _named_leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, Tensor | float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        tensor = torch.as_tensor(value).detach()
        if tensor.is_floating_point():
            yield name, tensor if tensor.layout == torch.strided else tensor.to_dense()


def _contains(test: Callable[[Tensor], Tensor], values: object) -> bool:
    floats = (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.is_floating_point())
    return any(bool(test(leaf).any()) for leaf in floats if not leaf.is_meta and leaf.numel())


def _locate(what: str, func: object) -> _Found:
    frames = [(row.filename, row.lineno or 0, row.name, row.line or "") for row in traceback.extract_stack()]
    return _from_frames(what, str(func).removeprefix("aten.").partition(".")[0], frames)


def _parse_anomaly(text: str) -> _Found:
    """Extract the operation and its forward call from torch's warning about NaN in a backward pass."""
    operation = text.removeprefix(ANOMALY_PREFIX).partition(".")[0].strip()
    frames = [(file, int(line), name, code) for file, line, name, code in FRAME.findall(text)]
    return _from_frames("NaN", f"{operation}, from a forward call", frames)


def _from_frames(what: str, operation: str, frames: list[tuple[str, int, str, str]]) -> _Found:
    """Build the result, dropping frames from torch and alchemy and the command-line frames above them."""
    first = next((i for i, row in enumerate(frames) if row[0].startswith(OUR_FOLDER)), 0)
    own = [row for row in frames[first:] if not row[0].startswith(LIBRARY_FOLDERS)]
    where = innermost([row[:2] for row in own])
    return _Found(what, operation, where, "".join(traceback.format_list(own)))
