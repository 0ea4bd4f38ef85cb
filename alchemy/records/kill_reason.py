"""Find out why the process of a run disappeared, as far as the kernel says so."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alchemy.files import read_bytes

UNKNOWN = "its process is gone: killed (SIGKILL, or out of memory) or crashed"
OUT_OF_MEMORY = "out of memory: the kernel killed the process"
KERNEL_LOG = "/dev/kmsg"  # usually readable only by root
CGROUPS = "/sys/fs/cgroup"
AFTER_SECONDS = 300.0  # a process dies soon after its last heartbeat; a later message is about a reused process id
_KILLED = re.compile(rb"^\d+,\d+,(\d+),[^;]*;.*Killed process (\d+)")
_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


def find_kill_reason(info: Mapping[str, Any]) -> str:
    """Return why the process that wrote a record is gone; `info` is its `record.json`."""
    heartbeat = datetime.datetime.fromisoformat(info["heartbeat"]).timestamp()
    kills = _read_kernel_log(int(time.monotonic() // 10))
    if any(pid == info["pid"] and -5 < moment - heartbeat < AFTER_SECONDS for pid, moment in kills):
        return OUT_OF_MEMORY
    before = info.get("oom_kills")
    if isinstance(before, dict) and _has_more_kills(before.get("file"), before.get("count")):
        return "probably out of memory: the kernel killed a process in the control group of the run"
    return UNKNOWN


def count_oom_kills() -> dict[str, Any] | None:
    """Return how often the OOM killer has struck in the control group of this process, and the file that says so."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            root, name = (f"{CGROUPS}/memory", "memory.oom_control") if controllers else (CGROUPS, "memory.events")
            for folder in (f"{root}{path}", root):  # a container may see its own group as the root
                file = os.path.normpath(f"{folder}/{name}")
                if (count := _read_count(file)) is not None:
                    return {"file": file, "count": count}
    return None


def _has_more_kills(file: object, before: object) -> bool:
    # the record may come from anywhere
    inside = isinstance(file, str) and os.path.normpath(file).startswith(f"{CGROUPS}/")
    count = _read_count(str(file)) if inside else None
    return count is not None and isinstance(before, int) and count > before


def _read_count(file: str) -> int | None:
    try:
        found = _COUNT.search(read_bytes(file, 4096))
    except (OSError, ValueError):
        return None
    return int(found[1]) if found else None


@functools.lru_cache(maxsize=1)
def _read_kernel_log(period: int) -> list[tuple[int, float]]:
    """Return the process id and the time of each kill in the kernel log; `period` limits how long they are cached."""
    try:
        handle = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    boot = time.time() - time.monotonic()  # both the log and this clock stand still while the machine sleeps
    found = []
    try:
        while True:
            try:
                message = os.read(handle, 8192)  # one message per call
            except BrokenPipeError:  # it was overwritten in the meantime
                continue
            if not message:
                break
            for line in message.splitlines():
                if match := _KILLED.match(line):
                    found.append((int(match[2]), boot + int(match[1]) / 1e6))
    except OSError:  # no more messages
        pass
    finally:
        os.close(handle)
    return found
