"""The choice of devices under its oldest name."""

from alchemy.util.device import alloc_cuda

__all__ = ["alloc_cuda"]
