"""The supervisor of an attempt: a process that starts a command, waits for it, and writes down how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from alchemy.queue.locked_file import LockedFile
from alchemy.records.status import now, process_start

GRACE_SECONDS = 60.0  # between SIGTERM and SIGKILL at the time limit: a run saves its state
NOT_STARTED = 127  # exit code of a command that could not be started, as in a shell
PR_SET_PDEATHSIG = 1  # option of prctl(2)
LONGEST_ERROR = 500  # characters; each takes up to 6 bytes of the status


class Task(NamedTuple):
    """What a supervisor runs."""

    attempt: int
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    log: Path
    seconds: float  # time limit; 0 is none
    detached: bool = True  # the command continues if the worker is killed


class Supervisor(NamedTuple):
    """A running supervisor of this process."""

    pid: int
    ended: int  # handle of a pipe that becomes readable when the supervisor ends

    def reap(self) -> None:
        os.close(self.ended)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start_supervisor(task: Task, file: LockedFile, is_stop_requested: Callable[[], bool]) -> Supervisor:
    """Fork a supervisor, which inherits the lock of the attempt; that of a detached task outlives this process.

    It is forked rather than started, because a new interpreter would take longer than many commands.
    """
    reading, writing = os.pipe()
    worker = os.getpid()
    try:
        with warnings.catch_warnings(action="ignore"):  # about threads, of which the child uses none
            pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        try:
            if not task.detached:
                _end_with(worker, ctypes.CDLL(None))
            _supervise(task, file, writing, is_stop_requested)
        finally:
            os._exit(0)
    os.close(writing)
    return Supervisor(pid, reading)


def _supervise(task: Task, file: LockedFile, pipe: int, is_stop_requested: Callable[[], bool]) -> NoReturn:
    os.setsid()  # Ctrl-C and the end of the terminal do not concern it
    log = os.open(task.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for handle, source in enumerate((null, log, log)):
        os.dup2(source, handle)
    _close_others({0, 1, 2, file.handle, pipe})
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    write_end(file, run_command(task, file, is_stop_requested))
    os._exit(0)


def run_command(
    task: Task, file: LockedFile, is_stop_requested: Callable[[], bool], more: Mapping[str, object] = {}
) -> dict[str, object]:
    """Run the command of an attempt, forward SIGTERM to it, and return how it ended."""
    status: dict[str, object] = {"attempt": task.attempt, **more}
    try:
        process = start_command(task.argv, task.cwd, task.env, pass_fds=(file.handle,))
    except (OSError, ValueError, subprocess.SubprocessError) as error:  # ValueError: a null character in the command
        text = f"cannot start {task.argv[0]!r} in {task.cwd}: {error}"[:LONGEST_ERROR]
        os.write(2, f"{text}\n".encode("utf-8", "replace"))
        status |= {"exit_code": NOT_STARTED, "error": text}
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        command = {"pid": process.pid, "pid_started": process_start(process.pid)}
        file.write({**status, **command, "supervisor": os.getpid()})
        if is_stop_requested():  # requested before the pid was known
            process.terminate()
        status |= _wait(process, task.seconds)
    return {**status, "ended": now()}


def _close_others(kept: set[int]) -> None:
    """Close everything that the worker has open, above all its own locks."""
    for handle in [int(name) for name in os.listdir("/dev/fd")]:
        if handle not in kept:
            with contextlib.suppress(OSError):  # the handle of the listing itself
                os.close(handle)


def start_command(argv: Sequence[str], cwd: str, env: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in its own process group; it gets SIGTERM if this process is killed."""
    supervisor, libc = os.getpid(), ctypes.CDLL(None)

    def prepare() -> None:
        _end_with(supervisor, libc)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker may ignore them, as under nohup
            signal.signal(number, signal.SIG_DFL)
        # Slurm may announce a preemption to all processes of a job, and the job itself stops its command
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    return subprocess.Popen(list(argv), cwd=cwd, env=dict(env), process_group=0, preexec_fn=prepare, **options)


def _end_with(parent: int, libc: ctypes.CDLL) -> None:
    """Make this process get SIGTERM when its parent ends."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    """Wait for the command, then stop what it has left behind in its process group."""
    timed_out = False
    try:
        process.wait(seconds or None)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    return {"exit_code": process.returncode, "timed_out": timed_out}


def write_end(file: LockedFile, status: Mapping[str, object]) -> None:
    """Write how the attempt ended; on a full disk, wait for space, since the exit code is known nowhere else."""
    while True:
        try:
            return file.write(status)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return
            time.sleep(1)
