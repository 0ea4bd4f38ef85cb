"""Copy values that a run logs, so that training may change them while the writer thread encodes them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def copy_value(value: Any) -> Any:
    """Return a copy of a tensor, array, PIL image, PNG file, or list of these; a tensor stays on its device."""
    if isinstance(value, list | tuple):
        return [copy_value(item) for item in value]
    if isinstance(value, bytes):
        return value
    if is_tensor(value):
        return value.detach().clone()
    if isinstance(value, np.ndarray) or hasattr(value, "tobytes"):  # PIL images have it, too
        return value.copy()
    raise TypeError(f"expected a tensor, a NumPy array or a PIL image, got {type(value).__name__}")


def size_of(value: Any) -> int:
    """Return the size of a copied value in bytes."""
    if isinstance(value, list):
        return sum(map(size_of, value))
    if isinstance(value, bytes):
        return len(value)
    if is_tensor(value):
        return value.numel() * value.element_size()  # also defined for sparse tensors
    if isinstance(value, np.ndarray):
        return value.nbytes
    width, height = value.size
    return int(width * height * 4)


def to_array(value: Any) -> np.ndarray:
    """Return a tensor, array, or anything NumPy understands as an array; bfloat16 becomes float32."""
    if is_tensor(value):
        value = value.detach().cpu()
        value = value.to_dense() if value.is_sparse else value
        try:
            return np.asarray(value.numpy())
        except TypeError:  # a type that NumPy does not have
            return np.asarray(value.float().numpy())
    return np.asarray(value)
