"""Old import path for device selection, with a list of allowed devices per run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

from alchemy.launch import device

__all__ = ["alloc", "alloc1", "alloc_cuda", "check_installed"]


def alloc(preferred_devices: Iterable[int | Iterable[int]], wait_time: float = 240.0) -> Iterator[dict[str, Any]]:
    """Yield a `device_info` for each entry: a device, or a list from which the least used existing device is chosen.

    An empty list means any GPU, or the CPU if there is none. `wait_time` has no effect: a GPU is returned immediately,
    even if another program uses it.
    """
    given: list[int] = []
    for entry in preferred_devices:
        numbers = [entry] if isinstance(entry, int) else list(entry) or [*range(device.cuda_count())] or [device.CPU]
        if len(numbers) > 1:
            numbers = [number for number in numbers if number < device.cuda_count()] or numbers
        given.append(min(numbers, key=given.count))
        yield device.alloc1(given[-1])


def alloc1(preferred_devices: int | Iterable[int], wait_time: float = 240.0) -> dict[str, Any]:
    """Return the `device_info` of one run."""
    return next(alloc([preferred_devices], wait_time))


alloc_cuda = alloc


def check_installed(package_name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(package_name) is not None
