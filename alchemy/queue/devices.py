"""The devices of this machine, and which of them an entry gets."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from alchemy.optional_packages import how_to_install
from alchemy.queue.entry import Entry, Needs

CPU = "cpu"


class GpuMemory(NamedTuple):
    """The memory of a GPU in MB."""

    free: float
    total: float


class Slots:
    """How many runs share the machine: `count` on each GPU, and `count` on the CPU.

    A run on the CPU takes one slot, no matter how many devices it asks for; without GPUs, all runs are on the CPU.
    """

    def __init__(
        self,
        count: int = 1,
        gpus: Sequence[str] = (),
        read_memory: Callable[[str], GpuMemory | None] | None = None,
        name: str = CPU,  # of the place of runs without a GPU; a cluster, for example
    ) -> None:
        self.count, self.gpus, self.name = count, tuple(gpus), name
        self._read_memory = read_memory or read_nvml

    def needs_gpu(self, needs: Needs) -> bool:
        return bool(self.gpus) and needs.devices > 0

    def explain_misfit(self, needs: Needs) -> str:
        """Return why an entry can never start here, or an empty string."""
        if needs.memory_mb and not self.gpus:
            return f"needs {needs.memory_mb} MB of GPU memory, but there is no GPU"
        if self.needs_gpu(needs) and needs.devices > len(self.gpus):
            return f"needs {needs.devices} GPUs, but there are {len(self.gpus)}"
        if self.needs_gpu(needs) and needs.memory_mb:
            known = [memory for gpu in self.gpus if (memory := self._read_memory(gpu)) is not None]
            if not known:
                return f"needs to measure GPU memory: {how_to_install('pynvml')}"
            totals = [memory.total for memory in known]
            if sum(total >= needs.memory_mb for total in totals) < needs.devices:
                return f"needs {needs.memory_mb} MB of GPU memory, but a GPU has {max(totals):.0f} MB"
        return ""

    def place(self, needs: Needs, running: Sequence[Entry]) -> tuple[str, ...]:
        """Return the devices for an entry; empty if it has to wait."""
        used = Counter(device for entry in running for device in entry.attempts[-1].device)
        if not self.needs_gpu(needs):
            return (self.name,) if used[self.name] < self.count else ()
        free = [gpu for gpu in self.gpus if used[gpu] < self.count and self._has_memory(gpu, needs, running)]
        free.sort(key=lambda gpu: used[gpu])
        return tuple(free[: needs.devices]) if len(free) >= needs.devices else ()

    def _has_memory(self, gpu: str, needs: Needs, running: Sequence[Entry]) -> bool:
        """Return whether a GPU has enough memory, including what its runs need but have not allocated yet."""
        if not needs.memory_mb:
            return True
        memory = self._read_memory(gpu)
        promised = sum(entry.needs.memory_mb for entry in running if gpu in entry.attempts[-1].device)
        return memory is not None and needs.memory_mb <= min(memory.free, memory.total - promised)

    def environment(self, devices: Sequence[str]) -> dict[str, str]:
        """Return the variables that tell a command which devices it has got."""
        if self.name in devices:
            return {"CUDA_VISIBLE_DEVICES": ""} if self.gpus else {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    @property
    def threads(self) -> dict[str, str]:
        """The variable that gives a run on the CPU its share of the cores; a run that has all of them needs none."""
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        return {"OMP_NUM_THREADS": str(max(1, cores // self.count))} if self.count > 1 else {}


def find_gpus() -> list[str]:
    """Return the names of the visible GPUs, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    with contextlib.suppress(Exception):  # no package, no driver, ..
        nvml = _nvml()
        return [str(number) for number in range(nvml.nvmlDeviceGetCount())]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True)
        lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]  # others are parts of a GPU
        return [str(number) for number, _ in enumerate(lines)]
    return []


def read_nvml(gpu: str) -> GpuMemory | None:
    """Return the memory of a GPU, or None without NVML."""
    with contextlib.suppress(Exception):
        nvml = _nvml()
        by_number = nvml.nvmlDeviceGetHandleByIndex
        handle = by_number(int(gpu)) if gpu.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(gpu)
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return GpuMemory(info.free / 2**20, info.total / 2**20)
    return None


@functools.cache
def _nvml():  # type: ignore[no-untyped-def]
    import pynvml

    pynvml.nvmlInit()
    return pynvml
