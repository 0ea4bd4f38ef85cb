"""A hash of what a batch contains, for data whose samples have no number."""

from __future__ import annotations

import copyreg
import hashlib
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from loguru import logger
from torch import Tensor

PLAIN = (str, bytes, int, float, complex, type(None))
NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
told: set[type[Exception]] = set()  # kinds of trouble that a warning has named


def content_digest(batch: object) -> bytes:
    """Equal for equal batches: tensors and arrays by their bytes, objects by their state, all else by its spelling.

    Empty for a batch that holds what cannot be digested, as a lock or an open file: a hash is no reason to end a run.
    """
    try:
        return digest_of(batch)
    except Exception as error:
        if type(error) not in told:
            told.add(type(error))
            logger.warning("a batch has no digest in the ledger: {}: {}", type(error).__name__, error)
        return b""


def digest_of(value: object, above: tuple[int, ...] = ()) -> bytes:
    """As `content_digest`, and raises whatever keeps a value from having one."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, value, above)
    return digest.digest()


def _add(digest: Any, value: object, above: tuple[int, ...]) -> None:
    """`above` are the ids of what the value lies in: it may lie in itself."""
    if isinstance(value, Tensor):
        _add_tensor(digest, value)
    elif isinstance(value, np.ndarray | np.generic):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        if value.dtype.hasobject:  # their bytes would be addresses
            _add(digest, value.tolist(), above)
        else:
            digest.update(value.tobytes())
    elif isinstance(value, PLAIN):
        digest.update(f"{type(value).__name__} {value!r}".encode())
    elif id(value) in above:
        digest.update(f"itself {above[::-1].index(id(value))}".encode())
    else:
        head, parts = _opened(value, above)
        digest.update(head.encode())
        for part in parts:
            _add(digest, part, (*above, id(value)))


def _add_tensor(digest: Any, value: Tensor) -> None:
    digest.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
    if value.layout is not torch.strided:
        value = value.to_sparse_coo().coalesce()
        _add_tensor(digest, value.indices())
        value = value.values()
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")


def _opened(value: object, above: tuple[int, ...]) -> tuple[str, Iterable[Any]]:
    """What stands for a container or an object, and what it holds."""
    if isinstance(value, Mapping):
        return f"dict {len(value)}", chain.from_iterable(value.items())
    if isinstance(value, list | tuple):
        return f"list {len(value)}", value
    if isinstance(value, set | frozenset):  # in no order
        return f"set {len(value)}", sorted(digest_of(item, above) for item in value)
    if isinstance(value, NAMED):
        return f"name {value.__module__}.{value.__qualname__}", ()
    # what a copy would be made of: an object's own spelling may hold its address
    state = copyreg.dispatch_table.get(type(value), lambda item: item.__reduce_ex__(4))(value)
    return "object", [list(part) if isinstance(part, Iterator) else part for part in state]
