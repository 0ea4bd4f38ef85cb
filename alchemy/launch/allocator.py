"""The memory of a process between two steps: kept for the next one, instead of given back to the system."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

# what mallopt(3) calls them
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
PAD = 64 << 20  # the heap grows by so many bytes at least
THEIRS = ("MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES")  # who sets one of these has an opinion of their own


def keep_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the C library keeps what tensors leave, from now on.

    By default glibc maps a large tensor anew each time, and the kernel fills its pages with zeros one by one: in a
    training on the CPU that can be a third of a step. It does nothing where there is no glibc, nor to what a GPU has.
    """
    if sys.platform != "linux" or any(name.startswith(THEIRS) for name in environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, value) for option, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, PAD)))
