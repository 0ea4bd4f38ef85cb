"""A hash of what a batch contains, for data whose samples have no number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def content_digest(batch: Any) -> bytes:
    """Equal for equal batches: tensors and arrays by their bytes, all else by its spelling."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, batch)
    return digest.digest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            digest.update(f"key {key!r}".encode())
            _add(digest, inner)
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}".encode())
        for inner in value:
            _add(digest, inner)
    elif isinstance(value, str | bytes | int | float | bool | None):
        digest.update(f"{type(value).__name__} {value!r}".encode())
    else:
        # an object's own spelling may hold its address; its fields do not
        digest.update(type(value).__qualname__.encode())
        _add(digest, dict(sorted(getattr(value, "__dict__", {}).items())))
