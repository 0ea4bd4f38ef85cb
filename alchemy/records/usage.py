"""Measure what a run uses: wall time, peak memory, CPU time and GPU time."""

from __future__ import annotations

import re
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
KEYS = ("peak_memory", "cpu_seconds", "gpu_seconds")


class Usage:
    """What this process uses for a run, in addition to what `before`, the record, says about earlier generations."""

    def __init__(self, before: Mapping[str, Any]) -> None:
        self._memory, self._cpu, self._gpu = _read_earlier(before)
        self._seconds = before.get("seconds")  # None if earlier generations did not measure it
        self._start, self._cpu_start = time.monotonic(), _cpu_seconds()
        self._gpu_start = self._start
        self._gpus = 0
        self._gpu_memory: Callable[[], float] = lambda: 0.0

    def watch_gpus(self, count: int, peak_memory: Callable[[], float]) -> None:
        """Count the time of `count` GPUs from now on; `peak_memory()` returns the peak of the first one in MiB."""
        self._gpus, self._gpu_memory, self._gpu_start = count, peak_memory, time.monotonic()

    def measure(self) -> dict[str, Any]:
        """Return the values for `record.json`. The values of GPUs are null for a run on the CPU."""
        memory = {"rss": _peak_rss(), "gpu": self._gpu_memory() if self._gpus else None}
        now = time.monotonic()
        seconds = self._gpus * (now - self._gpu_start)
        return {
            "seconds": None if self._seconds is None else round(self._seconds + now - self._start, 2),
            "peak_memory": {name: _larger(value, self._memory.get(name)) for name, value in memory.items()},
            "cpu_seconds": round(self._cpu + _cpu_seconds() - self._cpu_start, 2),
            "gpu_seconds": round(self._gpu + seconds, 2) if self._gpus or self._gpu else None,
        }


def _read_earlier(record: Mapping[str, Any]) -> tuple[dict[str, float], float, float]:
    memory, cpu, gpu = (record.get(key) for key in KEYS)
    peaks = memory.items() if isinstance(memory, dict) else ()
    numbers = {name: value for name, value in peaks if isinstance(value, int | float)}
    cpu, gpu = (value if isinstance(value, int | float) else 0.0 for value in (cpu, gpu))
    return numbers, cpu, gpu


def _larger(value: float | None, other: float | None) -> float | None:
    found = [round(number, 1) for number in (value, other) if number is not None]
    return max(found, default=None)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(row.ru_utime + row.ru_stime for row in used)


def _peak_rss() -> float:
    """Return the peak memory of this process in MiB."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
