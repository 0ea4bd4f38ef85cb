"""Hash the contents of a batch, for data whose samples have no index."""

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
warned: set[type[Exception]] = set()  # exception types that have already been reported


def content_digest(batch: object) -> bytes:
    """Return a hash of the contents of a batch; equal batches have equal hashes.

    Tensors and arrays are hashed by their bytes, objects by their state, plain values by their repr. If the batch
    contains something that cannot be hashed, such as a lock or an open file, log a warning and return `b""`.
    """
    try:
        return digest_of(batch)
    except Exception as error:
        if type(error) not in warned:
            warned.add(type(error))
            logger.warning("cannot hash a batch for the ledger: {}: {}", type(error).__name__, error)
        return b""


def digest_of(value: object, above: tuple[int, ...] = ()) -> bytes:
    """Return a hash of a value; unlike `content_digest`, raise if the value cannot be hashed."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, value, above)
    return digest.digest()


def _add(digest: Any, value: object, above: tuple[int, ...]) -> None:
    """Update the hash with a value. `above` contains the ids of the enclosing containers, used to detect cycles."""
    if isinstance(value, Tensor):
        _add_tensor(digest, value)
    elif isinstance(value, np.ndarray | np.generic):
        digest.update(f"array {value.dtype} {value.shape}".encode())
        if value.dtype.hasobject:  # the bytes would be memory addresses
            _add(digest, value.tolist(), above)
        else:
            digest.update(value.tobytes())
    elif isinstance(value, PLAIN):
        digest.update(f"{type(value).__name__} {value!r}".encode())
    elif id(value) in above:
        digest.update(f"itself {above[::-1].index(id(value))}".encode())
    else:
        head, parts = _decompose(value, above)
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


def _decompose(value: object, above: tuple[int, ...]) -> tuple[str, Iterable[Any]]:
    """Return a header for a container or object, and its parts."""
    if isinstance(value, Mapping):
        return f"dict {len(value)}", chain.from_iterable(value.items())
    if isinstance(value, list | tuple):
        return f"list {len(value)}", value
    if isinstance(value, set | frozenset):  # unordered
        return f"set {len(value)}", sorted(digest_of(item, above) for item in value)
    if isinstance(value, NAMED):
        return f"name {value.__module__}.{value.__qualname__}", ()
    # use the state that a copy would receive, because the repr of an object may contain its address
    state = copyreg.dispatch_table.get(type(value), lambda item: item.__reduce_ex__(4))(value)
    return "object", [list(part) if isinstance(part, Iterator) else part for part in state]
