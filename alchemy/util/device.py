"""The choice of a device under its old name."""

from alchemy.launch.device import alloc, alloc1, alloc_cuda

__all__ = ["alloc", "alloc1", "alloc_cuda"]
