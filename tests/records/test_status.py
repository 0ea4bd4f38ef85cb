"""The status of a record, in each state that a real process can leave it in."""

from __future__ import annotations

import datetime
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.files import lock_file
from alchemy.records import kill_reason, status
from alchemy.records.folder import Record, stop
from alchemy.records.status import read_info, repair
from alchemy.runner import run
from tests.toy import config

# creates a record and waits: without torch, so that it starts fast
WAITS = """
import socket, sys
socket.gethostname = lambda: sys.argv[2] or "{host}"
from alchemy.records import Record
Record.create(sys.argv[1], name="r", tag="t")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(folder: Path, processes: list[subprocess.Popen[str]], host: str = "") -> subprocess.Popen[str]:
    """Start a process that writes to the record `folder/r`, and wait until it has created it."""
    code = WAITS.replace("{host}", os.uname().nodename)
    words = [sys.executable, "-c", code, str(folder), host]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def as_written(folder: Path) -> dict[str, Any]:
    info: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return info


def edit(folder: Path, **fields: Any) -> None:
    (folder / "record.json").write_text(json.dumps(as_written(folder) | fields))


def test_a_process_that_is_alive_is_running_and_is_not_repaired(tmp_path: Path, processes: Any) -> None:
    start(tmp_path, processes)
    before = as_written(tmp_path / "r")
    assert read_info(tmp_path / "r")["status"] == "running"
    assert not repair(tmp_path / "r") and as_written(tmp_path / "r") == before


def test_a_process_killed_by_a_signal_is_killed_and_repaired_once(tmp_path: Path, processes: Any) -> None:
    kill(start(tmp_path, processes))
    folder = tmp_path / "r"
    assert as_written(folder)["status"] == "running"
    info = read_info(folder)
    assert (info["status"], info["reason"]) == ("killed", kill_reason.UNKNOWN)
    with pytest.raises(AlchemyError, match="is not running: killed"):
        stop(folder)
    assert repair(folder) and not repair(folder)
    info = as_written(folder)
    assert (info["status"], info["reason"], info["ended"]) == ("killed", kill_reason.UNKNOWN, info["heartbeat"])


def test_a_kill_in_the_kernel_log_is_out_of_memory(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(tmp_path, processes)
    kill(process)
    uptime = int(time.monotonic() * 1e6)
    line = "Memory cgroup out of memory: Killed process {} (python) total-vm:1kB"
    log = [f"6,1,{uptime},-;{line.format(1)}", f"3,2,{uptime},-;{line.format(process.pid)}", " SUBSYSTEM=x"]
    (tmp_path / "kmsg").write_text("\n".join(log) + "\n")
    monkeypatch.setattr(kill_reason, "KERNEL_LOG", str(tmp_path / "kmsg"))
    kill_reason._read_kernel_log.cache_clear()
    assert repair(tmp_path / "r")
    assert as_written(tmp_path / "r")["reason"] == kill_reason.OUT_OF_MEMORY
    kill_reason._read_kernel_log.cache_clear()


def test_a_kill_in_the_control_group_is_probably_out_of_memory(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(start(tmp_path, processes))
    monkeypatch.setattr(kill_reason, "CGROUPS", str(tmp_path))
    events = tmp_path / "job" / "memory.events"
    events.parent.mkdir()
    for count, reason in ((2, kill_reason.UNKNOWN), (3, "probably out of memory: the kernel killed a process in")):
        events.write_text(f"low 0\noom 9\noom_kill {count}\noom_group_kill 7\n")
        edit(tmp_path / "r", oom_kills={"file": str(events), "count": 2})
        assert read_info(tmp_path / "r")["reason"].startswith(reason)
    monkeypatch.setattr(kill_reason, "CGROUPS", "/sys/fs/cgroup")  # the file is outside
    assert read_info(tmp_path / "r")["reason"] == kill_reason.UNKNOWN


def test_a_machine_that_was_restarted_has_killed_the_run(tmp_path: Path, processes: Any) -> None:
    kill(start(tmp_path, processes))
    edit(tmp_path / "r", boot_id="another", heartbeat="2026-01-01T00:00:00.000+00:00")
    assert repair(tmp_path / "r")
    info = as_written(tmp_path / "r")
    assert (info["status"], info["reason"]) == ("killed", "the machine was restarted")


def test_another_machine_is_lost_once_it_is_silent(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(start(tmp_path, processes, host="elsewhere"))
    assert read_info(tmp_path / "r")["status"] == "running"  # its process cannot be seen from here
    monkeypatch.setattr(status, "SILENT_SECONDS", 0.0)
    info = read_info(tmp_path / "r")
    assert info["status"] == "lost" and info["reason"].startswith("no heartbeat from elsewhere since 20")
    assert not repair(tmp_path / "r") and as_written(tmp_path / "r")["status"] == "running"


def test_another_machine_with_the_same_name_is_not_judged_by_the_processes_here(tmp_path: Path, processes: Any) -> None:
    kill(start(tmp_path, processes))
    edit(tmp_path / "r", boot_id="another", heartbeat=datetime.datetime.now().astimezone().isoformat())
    assert read_info(tmp_path / "r")["status"] == "running" and not repair(tmp_path / "r")
    with pytest.raises(AlchemyError, match=r"is running on .*; stop it there"):
        stop(tmp_path / "r")


def test_a_record_that_another_process_has_locked_is_left_alone(tmp_path: Path, processes: Any) -> None:
    """As in a container with the same host name, whose processes cannot be seen."""
    process = start(tmp_path, processes)
    edit(tmp_path / "r", pid=2**22 + 1)
    assert read_info(tmp_path / "r")["status"] == "running" and not repair(tmp_path / "r")
    kill(process)
    assert read_info(tmp_path / "r")["status"] == "killed" and repair(tmp_path / "r")


def test_repair_keeps_its_lock_until_the_file_is_written(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(start(tmp_path, processes))
    code = "import sys; from alchemy.files import is_locked; sys.exit(is_locked(sys.argv[1]))"
    words = [sys.executable, "-c", code, str(tmp_path / "r" / ".lock")]
    seen: list[int] = []
    monkeypatch.setattr(status, "write_json", lambda *_: seen.append(subprocess.run(words, check=False).returncode))
    assert repair(tmp_path / "r") and seen == [1]


@pytest.mark.parametrize("obstacle", ["a link", "a folder", "a read-only disk"])
def test_what_cannot_be_repaired_is_no_error(
    obstacle: str, tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(start(tmp_path, processes))
    folder, lock = tmp_path / "r", tmp_path / "r" / ".lock"
    if obstacle == "a read-only disk":
        monkeypatch.setattr(os, "open", _refuse_to_write)
    else:
        lock.unlink()
        lock.symlink_to(tmp_path / "outside") if obstacle == "a link" else lock.mkdir()
    assert read_info(folder)["status"] == "killed"
    assert not repair(folder) and not (tmp_path / "outside").exists()
    assert as_written(folder)["status"] == "running"


def _refuse_to_write(path: Any, flags: int, mode: int = 0o777, *, open_file: Any = os.open, **kwargs: Any) -> int:
    if flags & (os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.EROFS, "read-only file system")
    return int(open_file(path, flags, mode, **kwargs))


def test_a_record_that_was_resumed_in_the_meantime_is_left_alone(
    tmp_path: Path, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(start(tmp_path, processes))
    folder = tmp_path / "r"

    def resume_first(path: Path) -> Any:
        edit(folder, gen=1, pid=os.getpid())
        return lock_file(path)

    monkeypatch.setattr(status, "lock_file", resume_first)
    assert not repair(folder) and as_written(folder)["status"] == "running"


@pytest.mark.parametrize(
    ("expected", "changes", "reason"),
    [
        ("finished", {}, ""),
        ("failed", {"model": {"type": "tests.toy.Broken"}}, "ValueError: no [weights] in {here}"),
        ("stopped", {"sched__pipes": [{"type": "tests.toy.SignalAt", "step": 1}]}, "signal 2: ended at the next step"),
    ],
)
def test_a_run_that_closes_its_record(expected: str, changes: Any, reason: str, tmp_path: Path) -> None:
    run([config(tmp_path, **changes)], device=[-1])
    (folder,) = tmp_path.iterdir()
    info = read_info(folder)
    assert info["status"] == expected and reason in info["reason"]
    assert info["ended"] is not None and not repair(folder)


def test_a_record_of_format_1_is_read_repaired_and_continued(tmp_path: Path, processes: Any) -> None:
    kill(start(tmp_path, processes))
    new = {"kind", "fold_hash", "git", "alchemy", "boot_id", "oom_kills", "peak_memory"}
    new |= {"seconds", "cpu_seconds", "gpu_seconds"}
    old = {key: value for key, value in as_written(tmp_path / "r").items() if key not in new}
    (tmp_path / "r" / "record.json").write_text(json.dumps(old | {"format": 1}))
    assert repair(tmp_path / "r") and as_written(tmp_path / "r")["format"] == 1
    record = Record.reopen(tmp_path / "r")
    record.undo_reopen()
    assert set(as_written(tmp_path / "r")) == set(old)
    record = Record.reopen(tmp_path / "r")
    record.finish("finished")
    info = read_info(tmp_path / "r")
    assert (info["format"], info["status"], info["gen"], info["kind"]) == (2, "finished", 1, "train")
    assert info["peak_memory"]["rss"] > 1 and info["seconds"] is None  # of its first process, it is not known
