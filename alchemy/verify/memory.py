"""What a training will hold in memory, measured on one step, and the remedy that fits when it is too much."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from alchemy.data.loader import memory_available
from alchemy.files import readable_size

ROOM = 0.9  # of what is free: fragmentation and the rest of the program want their share


@dataclass
class Memory:
    """Bytes of a training step. Activations are what one batch keeps for the backward pass."""

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
        return not self.free or self.total <= ROOM * self.free

    def __str__(self) -> str:
        rows = ("parameters", "gradients", "optimizer", "activations")
        text = ", ".join(f"{row} {readable_size(vars(self)[row])}" for row in rows)
        return f"memory: {text}; {readable_size(self.total)} in all" + (
            f" of {readable_size(self.free)} free" if self.free else ""
        )

    def remedy(self) -> str:
        """What would make it fit: the smallest change that is enough."""
        room = ROOM * self.free - self.fixed
        if room <= 0:
            without = self.parameters + self.gradients
            if without + self.parameters // 100 < ROOM * self.free:
                return "the optimizer's state is too large: alchemy.optim.Adafactor keeps almost none, SGD none"
            return "the model itself is too large: make it smaller, or freeze a part of it (requires_grad = false)"
        if self.batch_size < 2:
            return "one sample is too large: shorten it, or make the model smaller"
        samples = max(1, int(self.batch_size * room / self.activations))
        period = -(-self.batch_size // samples)
        return (
            f"batch_size = {samples} with [backward] period = {period} fits, and an update sees as many samples as now"
        )


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind tensors, each once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def measure(module: nn.Module, states: Iterable[Mapping[str, Any]], free: int) -> Memory:
    """What stays between steps; `states` is what the optimizer holds of each parameter after its first update."""
    params = list(module.parameters())
    trained = [p for p in params if p.requires_grad]
    held = [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return Memory(
        parameters=_bytes_of([*params, *module.buffers()]),
        gradients=sum(p.numel() * p.element_size() for p in trained),
        optimizer=_bytes_of(held),
        free=free,
    )


@contextlib.contextmanager
def kept_by_autograd(known: Iterable[Tensor]) -> Iterator[dict[int, int]]:
    """The bytes of each storage that autograd keeps for the backward pass while the block runs, but for known ones."""
    ours = {t.untyped_storage().data_ptr() for t in known}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse tensors have no storage of their own
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in ours:
                storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield storages


def free_memory(device: torch.device) -> int:
    """Bytes that a run may still take on a device; 0 where that is not known."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return memory_available()
