"""Benchmark checkpoints: the time that a save blocks training against one `clone()` of the same tensors, and a
complete save against `torch.save`. The model has 100 million parameters in 169 tensors, with AdamW: 1.2 GB.

Training waits only for the copy, so the paired blocks write to a disk that discards everything, for at most 100 s.
Complete saves write to a real disk, with fsync on both sides.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from alchemy.checkpoint import Checkpoints, Where
from alchemy.checkpoint.files import Disk
from bench.measure import Figure, ratio

WIDTH, LAYERS, WORDS = 768, 12, 20_000
SECONDS = 100.0
BLOCKED, CPU = "blocked by a save / clone(), wall", "blocked by a save / clone(), CPU"
FIRST = "the first save, which needs new memory / clone() in new memory, CPU"
TOTAL, MEMORY = "a complete save / torch.save and fsync, wall", "memory of a save / memory of its tensors"

Times = tuple[float, float]  # wall time, and CPU time of the calling thread


class Forgetful(Disk):
    """A disk that discards everything."""

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        pass

    def sync(self, file: BinaryIO) -> None:
        pass


class Model:
    """The large parts of a run: model and optimizer."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        self.module = nn.Sequential(nn.Embedding(words, width), *(self._layer(width) for _ in range(layers)))
        self.optim = torch.optim.AdamW(self.module.parameters())
        for param in self.module.parameters():
            param.grad = torch.zeros_like(param)
        self.optim.step()
        self.optim.zero_grad()

    @staticmethod
    def _layer(width: int) -> nn.Module:
        square = [nn.Linear(width, width) for _ in range(4)]
        return nn.Sequential(*square, nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width))

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    def tensors(self) -> list[Tensor]:
        rows = self.optim.state_dict()["state"].values()
        return [*self.state_dict().values(), *(tensor for row in rows for tensor in row.values())]

    def keeper(self, folder: Path, disk: Disk) -> Checkpoints:
        keeper = Checkpoints(folder, every=1)
        keeper.saver.disk = disk
        keeper.parts = {"model": self, "optim": self.optim}
        return keeper


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    model = Model(256, 4, 10_000) if quick else Model(WIDTH, LAYERS, WORDS)
    tensors = model.tensors()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    print(f"{len(tensors)} tensors, {size / 1e9:.2f} GB")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = [blocks(model, tensors, folder, 1, prepare=trim)[0] for _ in range(3 if quick else 10)]
        later = blocks(model, tensors, folder, 6 if quick else 41)[1:]
        whole = [time_complete_save(model, folder, size) for _ in range(3)]
    return [
        ratio(BLOCKED, [(ours[0], clone[0]) for ours, clone in later], 1.2),
        ratio(CPU, [(ours[1], clone[1]) for ours, clone in later], 1.2),
        ratio(FIRST, [(ours[1], clone[1]) for ours, clone in first], 1.2),
        ratio(TOTAL, [seconds for seconds, _ in whole], 2.0),
        ratio(MEMORY, [memory for _, memory in whole], 1.1),
    ]


def blocks(
    model: Model, tensors: list[Tensor], folder: Path, count: int, prepare: Callable[[], object] = lambda: None
) -> list[tuple[Times, Times]]:
    """Time a save and a clone in turns, with one `Checkpoints` object: only its first save allocates memory."""
    keeper = model.keeper(folder / "forgotten", Forgetful())
    rows: list[tuple[Times, Times]] = []
    end = time.monotonic() + SECONDS
    for update in range(count):
        if time.monotonic() > end and len(rows) > 1:  # the figure contains the number of pairs
            break
        where = Where(update + 1, 0, update)
        sides = {"ours": lambda where=where: keeper.after_update(where), "clone": lambda: [t.clone() for t in tensors]}
        times = {}
        for name in ("ours", "clone") if update % 2 else ("clone", "ours"):
            prepare()
            times[name] = time_call(sides[name])
            keeper.saver.wait()  # its thread must not compete with the other side
        rows.append((times["ours"], times["clone"]))
    keeper.close()
    shutil.rmtree(folder / "forgotten", ignore_errors=True)
    return rows


def time_call(call: Callable[[], Any]) -> Times:
    wall, cpu = time.perf_counter(), time.thread_time()
    kept = call()
    times = time.perf_counter() - wall, time.thread_time() - cpu
    del kept
    return times


def time_complete_save(model: Model, folder: Path, size: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time a complete save and torch.save; return (ours, theirs) in seconds, and (our extra memory, tensor size)."""
    before, begin = reset_peak(), time.perf_counter()
    keeper = model.keeper(folder / "state", Disk())
    keeper.after_update(Where(1, 0, 1))
    keeper.saver.wait()
    ours, memory = time.perf_counter() - begin, peak() - before
    keeper.close()
    before, begin = reset_peak(), time.perf_counter()
    with open(folder / "torch.pt", "wb") as file:
        torch.save({"model": model.state_dict(), "optim": model.optim.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    theirs = time.perf_counter() - begin
    print(
        f"complete save: {ours:.2f} s and {memory / 1e9:.2f} GB of extra memory; "
        f"torch.save: {theirs:.2f} s and {(peak() - before) / 1e9:.2f} GB"
    )
    shutil.rmtree(folder / "state")
    (folder / "torch.pt").unlink()
    return (ours, theirs), (memory, size)


def reset_peak() -> int:
    """Reset the peak to the memory in use now, after returning freed memory to the system; return it."""
    trim()
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def trim() -> None:
    """Return freed memory to the system."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
