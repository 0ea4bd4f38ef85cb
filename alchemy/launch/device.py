"""Select the devices for runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alchemy.errors import AlchemyError

CPU = -1


def alloc(devices: Sequence[int] | None = None, count: int = 1) -> list[dict[str, Any]]:
    """Return the `device_info` of the given devices; by default, up to `count` visible GPUs, or else the CPU."""
    if not devices:
        visible = cuda_count()
        devices = range(min(visible, count)) if visible else [CPU]
    return [alloc1(device) for device in devices]


def alloc1(device: int = CPU) -> dict[str, Any]:
    """Return the `device_info` of one device. A negative number selects the CPU, which needs no driver."""
    if isinstance(device, bool) or not isinstance(device, int):
        raise AlchemyError(f"expected a device number, got {device!r}", hint="-1 is the CPU, 0 the first GPU")
    return {"device": "cpu"} if device < 0 else alloc_cuda(device)


def alloc_cuda(device: int = 0) -> dict[str, Any]:
    """Return the `device_info` of a GPU; raise an error if it does not exist."""
    import torch

    visible = cuda_count()
    if not 0 <= device < visible:
        seen = f"{visible} GPUs are visible, numbered from 0" if visible else "torch found no usable GPU"
        raise AlchemyError(f"no device {device}: {seen}", hint="use --device -1 for the CPU")
    properties = torch.cuda.get_device_properties(device)
    return {
        "device": f"cuda:{device}",
        "desc": f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB",
        "driver": _driver_version(),
    }


def cuda_count() -> int:
    """Return the number of visible GPUs, or 0 without a driver."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _driver_version() -> str:
    """Return the driver version from NVML. It is informational only, so errors are ignored."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
    except Exception:
        return "unknown"
    return version.decode() if isinstance(version, bytes) else str(version)
