"""A disk that fails or loses power at a chosen operation or byte, and states to save on it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from alchemy.checkpoint.files import Disk, read, write
from alchemy.checkpoint.manifest import Manifest, checkpoints


class PowerCut(BaseException):
    """The process is gone: nothing runs after it, and nothing is cleaned up."""


class FaultyDisk(Disk):
    """Fail at operation `call` or after `room` bytes: with an error, or (`power`) with a power cut.

    Nothing is really synced, which would be slow; instead, the data that a power cut would lose is truncated.
    """

    def __init__(self, *, call: int = 10**9, room: int = 10**9, power: bool = False) -> None:
        self.call, self.room, self.power = call, room, power
        self.calls = self.written = 0
        self.dark = False
        self.unsynced: list[Path] = []
        self.renamed: list[Path] = []

    def _operation(self) -> None:
        if self.dark:
            raise PowerCut("the plug was pulled")
        self.calls += 1
        if self.calls > self.call:
            self._fail(OSError(errno.EIO, "Input/output error"))

    def _fail(self, error: OSError) -> None:
        if self.power:
            self.lose_power()
            raise PowerCut("the plug was pulled")
        raise error

    def lose_power(self) -> None:
        """Lose half of the data that was not synced, even if files were moved."""
        self.dark = True
        for path in self.unsynced:
            with open(path, "rb+") as file:
                file.truncate(path.stat().st_size // 2)

    def make_folder(self, folder: Path) -> None:
        self._operation()
        super().make_folder(folder)

    def open(self, path: Path) -> BinaryIO:
        self._operation()
        self.unsynced.append(path)
        return super().open(path)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        self._operation()
        left = self.room - self.written
        self.written += len(data)
        super().write(file, data[: max(left, 0)])
        if len(data) > left:
            file.flush()
            self._fail(OSError(errno.ENOSPC, "No space left on device"))

    def sync(self, file: BinaryIO) -> None:
        self._operation()
        file.flush()
        self.unsynced.remove(Path(file.name))

    def rename(self, source: Path, target: Path) -> None:
        self._operation()
        super().rename(source, target)
        self.renamed.append(target)
        self.unsynced = [target / path.name if path.parent == source else path for path in self.unsynced]

    def sync_folder(self, folder: Path) -> None:
        self._operation()

    def remove(self, folder: Path) -> None:
        if not self.dark:
            super().remove(folder)
            self.unsynced = [path for path in self.unsynced if path.parent != folder]


def tensors_of(update: int) -> dict[str, Tensor]:
    """Return a state of many types and shapes that depends only on its update."""
    draw = torch.Generator().manual_seed(update)
    return {
        "weight": torch.randn(9, 7, generator=draw),
        "half": torch.randn(3, generator=draw).to(torch.bfloat16),
        "flag": torch.rand(5, generator=draw) > 0.5,
        "count": torch.tensor(update),
        "empty": torch.zeros(0, 3),
    }


def files_of(update: int) -> dict[str, Any]:
    tensors = tensors_of(update)
    optim = {name: tensor for name, tensor in tensors.items() if name != "flag"}
    return {"state.json": {"parts": {"update": update}}, "model.safetensors": tensors, "optim.safetensors": optim}


def save(state: Path, update: int, disk: Disk, name: str = "") -> Path:
    manifest = Manifest(update=update, epoch=0, step=update, time="")
    return write(state / (name or f"u{update}"), files_of(update), manifest, disk)


def is_exactly(folder: Path, update: int) -> bool:
    """Return whether a checkpoint is bit for bit that of an update."""
    found, expected = read(folder), files_of(update)
    if set(found) != set(expected) or found["state.json"] != expected["state.json"]:
        return False
    return all(
        same_bits(found[file][name], tensor)
        for file in ("model.safetensors", "optim.safetensors")
        for name, tensor in expected[file].items()
    )


def same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return torch.equal(*raw)


def names(state: Path) -> list[str]:
    return [path.name for path in checkpoints(state)]


class Holder:
    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state
