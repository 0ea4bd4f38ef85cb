"""Oldest import path for device selection."""

from alchemy.util.device import alloc_cuda

__all__ = ["alloc_cuda"]
