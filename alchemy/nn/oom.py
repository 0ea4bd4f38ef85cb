"""Recognize and explain out-of-memory errors, and split batches in half."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from alchemy.errors import RunFailed

REMEDIES = (
    "lower batch_size and raise [backward] period, or set halve_on_oom = true, recompute or dtype = 'bf16' in "
    "[precision]; `alchemy find batch-size` finds a size that fits"
)


def is_oom(error: BaseException) -> bool:
    """Return whether an error means that the device or the machine is out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "DefaultCPUAllocator: can't allocate memory" in text or "DefaultCPUAllocator: not enough memory" in text
    )


def explain_oom(error: BaseException, shapes: str, why_whole: str = "") -> RunFailed:
    """Return an error with the batch shapes, possible fixes, and the reason why the batch was not halved."""
    text = f"out of memory on a batch of {shapes}: {str(error).partition(chr(10))[0]}"
    return RunFailed(f"{text} ({why_whole})" if why_whole else text, hint=REMEDIES)


def halves(batch: object) -> tuple[Any, Any] | None:
    """Split a batch in half; return None if it has one sample or if the split is ambiguous.

    Tensors, arrays and lists are split along the samples; strings, floats and other objects are copied to both halves.
    The split is ambiguous if sizes disagree, or if an integer may be a count of something in the batch.
    """
    count = _count(batch)
    if count is None or count < 2:
        return None
    middle = (count + 1) // 2
    try:
        return _cut(batch, slice(0, middle)), _cut(batch, slice(middle, count))
    except _Unclear:
        return None


class _Unclear(Exception):
    """Raised if a value cannot be split unambiguously."""


def _count(batch: object) -> int | None:
    """Return the number of samples if all fields of the batch agree on it."""
    sizes = set(_sizes(batch))
    return sizes.pop() if len(sizes) == 1 else None


def _sizes(value: object) -> Iterator[int]:
    if _is_array(value) or _is_samples(value):
        yield len(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _sizes(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _sizes(item)


def _is_array(value: object) -> TypeGuard[Tensor | np.ndarray]:
    return isinstance(value, Tensor | np.ndarray) and value.ndim > 0


def _is_samples(value: object) -> TypeGuard[list[Any]]:
    """Return whether a list contains samples; a list of tensors contains columns, as in torch's default collation."""
    return isinstance(value, list) and not any(map(_is_array, value))


def _is_unclear(value: object) -> bool:
    """Return whether a value is ambiguous: tensors of equal shape may be samples, and an integer may count tokens."""
    if isinstance(value, list):
        return len({(tuple(item.shape), str(item.dtype)) for item in value if _is_array(item)}) == 1 < len(value)
    if isinstance(value, Tensor):
        return not value.is_floating_point()
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _cut(value: object, rows: slice) -> Any:
    if _is_array(value) or _is_samples(value):
        return value[rows]
    if _is_unclear(value):
        raise _Unclear
    if isinstance(value, MutableMapping):
        cut = copy.copy(value)  # preserves the class of the batch
        cut.update({key: _cut(item, rows) for key, item in value.items()})
        return cut
    if isinstance(value, list | tuple):
        return _rebuild(value, [_cut(item, rows) for item in value])
    return value


def _rebuild(like: Sequence[Any], items: list[Any]) -> Any:
    if hasattr(like, "_fields"):  # a named tuple
        return type(like)(*items)
    return type(like)(items)  # type: ignore[call-arg]


@contextmanager
def gradients_kept(params: Sequence[nn.Parameter]) -> Iterator[None]:
    """Make the backward pass in this block atomic: if it fails, the previous gradients are restored.

    Gradients from earlier steps are kept in addition to the new ones, which doubles the memory for gradients.
    """
    before = [param.grad for param in params]
    for param in params:
        param.grad = None
    try:
        yield
    except BaseException:
        for param, grad in zip(params, before, strict=True):
            param.grad = grad
        raise
    rows = [(p, grad) for p, grad in zip(params, before, strict=True) if grad is not None]
    both = [(grad, p.grad) for p, grad in rows if p.grad is not None]
    if both:
        torch._foreach_add_([grad for grad, _ in both], [new for _, new in both])
    for param, grad in rows:
        param.grad = grad


def merge_halves(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the outputs of the two halves of a step: sums, counts, and the mean loss."""
    names = [name for name in ("loss_sum", "count", "tokens") if all(name in part for part in parts)]
    total = {name: sum(part[name] for part in parts) for name in names}
    return {**total, "loss": total["loss_sum"] / total["count"]}
