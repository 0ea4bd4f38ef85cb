"""Convert tensors and arrays to arrays and images that can be shown."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.images.pictures import to_rgb

CHANNELS = (1, 3, 4)


@runtime_checkable
class _Tensor(Protocol):
    """A torch tensor; this package does not import torch."""

    def detach(self) -> Any: ...
    def cpu(self) -> Any: ...


def to_array(value: object) -> np.ndarray:
    """Return a tensor, array, nested list or Pillow image as an array of real numbers; raises ValueError otherwise."""
    if isinstance(value, _Tensor):
        tensor = value.detach().cpu()
        value = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor  # NumPy lacks that type
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{type(value).__name__} is not an array: {error}") from error
    if array.dtype.kind not in "buif":
        raise ValueError(f"{type(value).__name__} is not an array of real numbers")
    return array


def to_image(value: object) -> np.ndarray:
    """Return an image as uint8 [H, W, 3]. It may be [H, W], [H, W, C] or [C, H, W], with 1, 3 or 4 channels.

    Values from 0 to 1 and bytes keep their brightness. Other values are scaled so that the smallest is black and the
    largest is white. NaN is black.
    """
    try:
        array = to_array(value)
    except ValueError as error:
        raise AlchemyError(f"not an image: {error}") from error
    if array.ndim == 3 and array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim not in (2, 3) or not array.size or (array.ndim == 3 and array.shape[2] not in CHANNELS):
        hint = "expected [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels"
        raise AlchemyError(f"not an image: an array of shape {list(array.shape)}", hint=hint)
    return to_rgb(array if array.dtype == np.uint8 else _to_bytes(array.astype(np.float64)))


def _to_bytes(array: np.ndarray) -> np.ndarray:
    known = array[np.isfinite(array)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scaled = (np.clip(array, low, high) / 2 - low / 2) / (high / 2 - low / 2 or 1.0)  # halves, which do not overflow
    return (np.nan_to_num(scaled) * 255).round().astype(np.uint8)
