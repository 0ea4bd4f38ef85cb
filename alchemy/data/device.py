"""Move nested batches to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


@runtime_checkable
class _Movable(Protocol):
    def to(self, *args: Any, **kwargs: Any) -> Any: ...


@runtime_checkable
class _Named(Protocol):
    _fields: tuple[str, ...]


def batch_to_device(batch: Any, device: torch.device | str, non_blocking: bool = False) -> Any:
    """Return a batch of the same structure with every tensor on `device`; other values are unchanged."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if isinstance(batch, dict):
        moved = {key: batch_to_device(value, device, non_blocking) for key, value in batch.items()}
        return moved if type(batch) is dict else _rebuild_dict(batch, moved)
    if isinstance(batch, list | tuple) and not isinstance(batch, PackedSequence):  # a tuple with its own `to` method
        return _rebuild_sequence(batch, [batch_to_device(item, device, non_blocking) for item in batch])
    if batch is None or isinstance(batch, str | bytes | int | float):
        return batch
    return _move_other(batch, device, non_blocking)


def _rebuild_sequence(batch: list[Any] | tuple[Any, ...], moved: list[Any]) -> Any:
    if type(batch) is list:
        return moved
    # the constructor of a namedtuple takes separate arguments
    return type(batch)(*moved) if isinstance(batch, _Named) else type(batch)(moved)


def _rebuild_dict(batch: dict[Any, Any], moved: dict[Any, Any]) -> Any:
    """Return a copy of the same type: a defaultdict keeps its factory, an OrderedDict its order."""
    out = copy.copy(batch)
    out.update(moved)
    return out


def _move_other(batch: Any, device: torch.device | str, non_blocking: bool) -> Any:
    if isinstance(batch, _Movable):
        try:
            moved = batch.to(device, non_blocking=non_blocking)
        except TypeError:  # not every `to` accepts non_blocking
            moved = batch.to(device)
        return batch if moved is None else moved
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        out = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # replace() would run the constructor again; object.__setattr__ also works on frozen dataclasses
            object.__setattr__(out, field.name, batch_to_device(getattr(batch, field.name), device, non_blocking))
        return out
    if isinstance(batch, Mapping):
        return {key: batch_to_device(value, device, non_blocking) for key, value in batch.items()}
    return batch
