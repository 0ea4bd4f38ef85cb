"""Which device a run gets, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alchemy.errors import AlchemyError

CPU = -1


def alloc(devices: Sequence[int] | None = None, count: int = 1) -> list[dict[str, Any]]:
    """The devices to use: those asked for, else every GPU that is there (at most `count`), else the CPU."""
    if not devices:
        visible = cuda_count()
        devices = range(min(visible, count)) if visible else [CPU]
    return [alloc1(device) for device in devices]


def alloc1(device: int = CPU) -> dict[str, Any]:
    """`device_info` of one device; a number below zero is the CPU, which asks nothing of a driver."""
    if isinstance(device, bool) or not isinstance(device, int):
        raise AlchemyError(f"a device is a number, not {device!r}", hint="-1 is the CPU, 0 the first GPU")
    return {"device": "cpu"} if device < 0 else alloc_cuda(device)


def alloc_cuda(device: int = 0) -> dict[str, Any]:
    """`device_info` of a GPU; one that is not there is an error at once, not something to wait for."""
    import torch

    visible = cuda_count()
    if not 0 <= device < visible:
        seen = f"there are {visible} GPUs, numbered from 0" if visible else "there is no GPU that torch can use"
        raise AlchemyError(f"there is no device {device}: {seen}", hint="use --device -1 for the CPU")
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": f"cuda:{device}",
        "desc": f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB",
        "driver": _driver(),
    }


def cuda_count() -> int:
    """How many GPUs are visible; no driver means none."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _driver() -> str:
    """The driver's version as NVML tells it; it is only shown, so its absence is not an error."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
    except Exception:
        return "unknown"
    return version.decode() if isinstance(version, bytes) else str(version)
