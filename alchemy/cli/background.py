"""Start and stop background runs: detached processes with their own log files."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.cli import repair_argument
from alchemy.config.secrets import hide_words
from alchemy.errors import AlchemyError
from alchemy.files import home, read_table, write_json
from alchemy.records.status import is_alive, process_start


def launch_detached(words: Sequence[str], *, folder: Path | None = None) -> dict[str, Any]:
    """Start `alchemy WORDS` in a new session, so that it keeps running after the terminal closes."""
    folder = folder or home() / "background"
    name = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S.%f")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{name}.log"
        with open(log, "xb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "alchemy", *(word.encode("utf-8", "surrogateescape") for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
    except OSError as error:
        raise AlchemyError(f"cannot write the log of the background run: {error}") from error
    started = process_start(process.pid)
    info = {
        "pid": process.pid,
        "pid_started": started,
        "log": str(log),
        "cmd": ["alchemy", *hide_words(map(repair_argument, words))],
        "cwd": os.getcwd(),
    }
    process.returncode = 0  # keeps Popen from warning about a child that is still running
    write_json(log.with_suffix(".json"), info)
    return info


def stop_detached(pid: int) -> dict[str, Any]:
    """Send SIGTERM to a background run of this project; never signal any other process."""
    for path in sorted((home() / "background").glob("*.json"), reverse=True):
        try:
            info = read_table(path)
        except (OSError, ValueError):  # damaged, or not written by launch_detached
            continue
        if info.get("pid") == pid:
            if not is_alive(info):
                raise AlchemyError(f"background run {pid} has already ended", hint=f"see {info['log']}")
            os.kill(pid, signal.SIGTERM)
            return dict(info)
    raise AlchemyError(f"no background run with pid {pid} in this project", hint="pass the path of its record")


def wait_for_exit(info: Mapping[str, Any], seconds: float) -> int:
    """Wait up to some seconds for a process to end; return the exit code of the command that stops it."""
    deadline = time.monotonic() + seconds
    while seconds and is_alive(info):
        if time.monotonic() > deadline:
            print(f"still running after {seconds:g} s")
            return 1
        time.sleep(0.05)
    return 0


def scratch_folder() -> Path:
    """Return the log folder for runs that write nothing to the project."""
    return Path(tempfile.gettempdir()) / f"alchemy-background-{os.getuid()}"
