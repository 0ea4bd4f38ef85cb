"""Measure the memory of a training step, and suggest a fix if it does not fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from alchemy.data.loader import memory_available
from alchemy.files import readable_size

USABLE_SHARE = 0.9  # usable fraction of free memory; the rest is for fragmentation and other allocations


@dataclass
class Memory:
    """The memory used by a training step, in bytes. Activations are the tensors saved for the backward pass."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    free: int = 0
    batch_size: int = 0

    @property
    def fixed(self) -> int:
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        return self.fixed + self.activations

    @property
    def fits(self) -> bool:
        return not self.free or self.total <= USABLE_SHARE * self.free

    def __str__(self) -> str:
        rows = ("parameters", "gradients", "optimizer", "activations")
        text = ", ".join(f"{row} {readable_size(vars(self)[row])}" for row in rows)
        free = f", {readable_size(self.free)} free" if self.free else ""
        return f"memory: {text}; total {readable_size(self.total)}{free}"

    def suggest_fix(self) -> str:
        """Suggest the smallest change that makes the step fit."""
        room = USABLE_SHARE * self.free - self.fixed
        if room <= 0:
            without = self.parameters + self.gradients
            if without + self.parameters // 100 < USABLE_SHARE * self.free:
                return "the optimizer state is too large: alchemy.optim.Adafactor needs almost none, and SGD needs none"
            return "the model is too large: make it smaller, or freeze part of it (requires_grad = false)"
        if self.batch_size < 2:
            return "one sample is too large: shorten it, or make the model smaller"
        samples = max(1, int(self.batch_size * room / self.activations))
        period = -(-self.batch_size // samples)
        return (
            f"batch_size = {samples} with [backward] period = {period} fits and keeps the number of samples per update"
        )


def _count_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size in bytes of the tensors' storages, counting each storage once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def measure(module: nn.Module, states: Iterable[Mapping[str, Any]], free: int) -> Memory:
    """Measure the memory that persists between steps; `states` are the per-parameter states of the optimizer."""
    params = list(module.parameters())
    trained = [p for p in params if p.requires_grad]
    held = [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return Memory(
        parameters=_count_bytes([*params, *module.buffers()]),
        gradients=sum(p.numel() * p.element_size() for p in trained),
        optimizer=_count_bytes(held),
        free=free,
    )


@contextlib.contextmanager
def track_saved_tensors(known: Iterable[Tensor]) -> Iterator[dict[int, int]]:
    """Record the size of each storage that autograd saves for the backward pass, except those of `known` tensors."""
    ours = {t.untyped_storage().data_ptr() for t in known}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse tensors have no storage
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in ours:
                storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield storages


def free_memory(device: torch.device) -> int:
    """Return the free memory of a device in bytes; 0 if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return memory_available()
