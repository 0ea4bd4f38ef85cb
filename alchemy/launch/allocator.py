"""Configure malloc to keep freed memory for the next step."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

# options of mallopt(3)
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
PAD = 64 << 20  # minimum growth of the heap in bytes
USER_SETTINGS = ("MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES")  # if any is set, the user has configured malloc


def keep_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Make malloc keep freed memory; return whether it was configured.

    By default, glibc maps memory for every large tensor and the kernel zeroes its pages, which can take a third of a
    training step on the CPU. Does nothing without glibc; GPU memory is not affected.
    """
    if sys.platform != "linux" or any(name.startswith(USER_SETTINGS) for name in environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, value) for option, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, PAD)))
