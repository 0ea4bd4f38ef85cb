"""The choice of a GPU under its oldest name."""

from alchemy.launch.device import alloc_cuda

__all__ = ["alloc_cuda"]
