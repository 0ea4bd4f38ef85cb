"""The status of a record, as every reader sees it: a run whose process is gone is no longer running."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.files import is_locked, lock_file, write_json
from alchemy.records.record_json import read_fields
from alchemy.records.symlinks import path_inside

HEARTBEAT_SECONDS = 30.0
SILENT_SECONDS = 10 * HEARTBEAT_SECONDS
INFO, LOCK = "record.json", ".lock"
RESTARTED = "the machine was restarted"


def read_info(folder: str | Path) -> dict[str, Any]:
    """Read `record.json`; change the status `running` to `killed` or `lost` if the process no longer exists."""
    info = read_fields(Path(folder) / INFO)
    if info["status"] == "running":
        info["status"], info["reason"] = _judge(Path(folder), info)
    return info


def _judge(folder: Path, info: Mapping[str, Any]) -> tuple[str, str]:
    """Return the status of a run whose record says that it is running, and the reason."""
    if is_here(info):
        # the lock is proof even if the process is in a container with the same host name
        if is_alive(info) or is_locked(folder / LOCK):
            return "running", info["reason"]
        from alchemy.records.kill_reason import find_kill_reason

        return "killed", find_kill_reason(info)
    if info["host"] == socket.gethostname() and _heartbeat(info) < _boot_time():
        return "killed", RESTARTED
    if time.time() - _heartbeat(info) > SILENT_SECONDS:
        return "lost", f"no heartbeat from {info['host']} since {info['heartbeat']}"
    return "running", info["reason"]


def repair(folder: Path) -> bool:
    """Write the status `killed` to a record that says `running` although its process is gone; return whether it did.

    Only the death of a process on this machine can be proven. A record that another process is writing to, or that
    cannot be written, is left alone.
    """
    try:
        judged = read_info(folder)
        if judged["status"] != "killed" or judged.get("ended") is not None:
            return False
        with lock_file(path_inside(folder, LOCK)) as free:
            # read again: the run may have been resumed in the meantime
            unchanged = read_fields(path_inside(folder, INFO)) | _verdict(judged) == judged
            if free and unchanged:
                judged["ended"] = judged["heartbeat"]
                write_json(folder / INFO, judged)
            return free and unchanged
    except (OSError, AlchemyError):
        return False


def explain_stop(folder: Path, reason: str) -> None:
    """Replace the reason of a run that was stopped, for example by a sweep; a record that is in use is left alone."""
    with contextlib.suppress(OSError, AlchemyError), lock_file(path_inside(folder, LOCK)) as free:
        info = read_fields(path_inside(folder, INFO))
        if free and info["status"] == "stopped":
            write_json(folder / INFO, {**info, "reason": reason})


def _verdict(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: info[name] for name in ("status", "reason")}


def try_read_info(folder: Path) -> dict[str, Any]:
    """Read `record.json` like `read_info`; return an empty table if it is damaged, or missing as in alchemy 0.x."""
    try:
        return read_info(folder)
    except AlchemyError:
        return {}


def status_of(folder: Path) -> str:
    """Return the status of a record, or an empty string if it cannot be read."""
    return str(try_read_info(folder).get("status", ""))


def refuse_running(folder: Path, info: Mapping[str, Any]) -> None:
    """Raise an error if the run that writes to a record is still running, here or on another machine."""
    if info.get("status") == "running":
        here = is_here(info)
        where = "" if here else f" on {info['host']}"
        silence = f"or wait if it is gone: it is considered lost after {SILENT_SECONDS:g} s without a heartbeat"
        hint = "stop it with `alchemy stop`" if here else f"stop it there, {silence}"
        raise AlchemyError(f"{folder} is still running{where}, as process {info['pid']}", hint=hint)


def is_here(info: Mapping[str, Any]) -> bool:
    """Return whether a record was last written on this machine, since its last boot; otherwise, its PID is meaningless.

    Host names are not unique, but records of format 1 have nothing else.
    """
    boot = info.get("boot_id")
    return info["host"] == socket.gethostname() and (boot is None or boot == boot_id())


@functools.cache
def boot_id() -> str | None:
    """Return the random id that the kernel drew when it started; None outside Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _boot_time() -> float:
    try:
        return time.time() - float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError):
        return 0.0


def _heartbeat(info: Mapping[str, Any]) -> float:
    return datetime.datetime.fromisoformat(info["heartbeat"]).astimezone().timestamp()


def is_alive(info: Mapping[str, Any]) -> bool:
    """Return whether the process that writes to a record is still running on this machine; ignores reused PIDs."""
    start = process_start(info["pid"])
    return start is not None and start == info.get("pid_started")


def process_start(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot: None if it has ended, 0 if unknown (outside Linux)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if not _process_exists(pid) else 0
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
