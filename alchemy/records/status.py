"""The status of a record, as every reader sees it: a run whose process is gone is no longer running."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.records.record_json import read_fields

HEARTBEAT_SECONDS = 30.0
SILENT_SECONDS = 10 * HEARTBEAT_SECONDS
INFO = "record.json"


def read_info(folder: str | Path) -> dict[str, Any]:
    """Read `record.json`; change the status `running` to `killed` or `lost` if the process no longer exists."""
    info = read_fields(Path(folder) / INFO)
    if info["status"] == "running" and info["host"] == socket.gethostname() and not is_alive(info):
        info["status"], info["reason"] = "killed", "its process is gone"
    elif info["status"] == "running" and info["host"] != socket.gethostname() and _is_silent(info):
        info["status"], info["reason"] = "lost", f"no heartbeat from {info['host']} since {info['heartbeat']}"
    return info


def status_of(folder: Path) -> str:
    """Return the status of a record, or an empty string if it cannot be read."""
    try:
        return str(read_info(folder)["status"])
    except AlchemyError:
        return ""


def refuse_running(folder: Path, info: Mapping[str, Any]) -> None:
    """Raise an error if the run that writes to a record is still running, here or on another machine."""
    if info["status"] == "running":
        here = info["host"] == socket.gethostname()
        where = "" if here else f" on {info['host']}"
        silence = f"or wait if it is gone: it is considered lost after {SILENT_SECONDS:g} s without a heartbeat"
        hint = "stop it with `alchemy stop`" if here else f"stop it there, {silence}"
        raise AlchemyError(f"{folder} is still running{where}, as process {info['pid']}", hint=hint)


def _is_silent(info: Mapping[str, Any]) -> bool:
    """Return whether a run on another machine has missed enough heartbeats to be considered lost."""
    last = datetime.datetime.fromisoformat(info["heartbeat"]).astimezone()
    return (datetime.datetime.now().astimezone() - last).total_seconds() > SILENT_SECONDS


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
