"""Who runs the attempts of entries: supervisors on this machine, or a cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from pathlib import Path
from typing import Protocol

from alchemy.errors import AlchemyError
from alchemy.queue.entry import LOCAL, Entry
from alchemy.queue.folder import Queue
from alchemy.queue.locked_file import LockedFile, lock, read_status
from alchemy.queue.supervisor import Supervisor, Task, start_supervisor
from alchemy.records.status import is_alive, status_of
from alchemy.registry import resolve

# who an entry runs on -> import path; the queue does not depend on clusters
EXECUTORS = {
    LOCAL: "alchemy.queue.executor.LocalExecutor",
    "ray": "alchemy.cluster.ray_executor.RayExecutor",
    "slurm": "alchemy.cluster.slurm_executor.SlurmExecutor",
}


class Executor(Protocol):
    """Runs the attempts of entries. How an attempt ended is in the file of the attempt, whoever ran it."""

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Supervisor | None:
        """Start an attempt, or collect it until `submit`; return its supervisor if there is one on this machine."""

    def submit(self, queue: Queue) -> None:
        """Start the attempts that were collected."""

    def is_alive(self, queue: Queue, entry: Entry) -> bool:
        """Return whether anything of the latest attempt of an entry may still be running, or is going to.

        If only the cluster knows how the attempt ended, this writes it into the file of the attempt.
        """

    def terminate(self, queue: Queue, entry: Entry) -> None:
        """Make the latest attempt save its state and end. Its next state is in the entry."""

    def describe(self, queue: Queue, entry: Entry) -> str:
        """Return what a listing shows about a running entry."""


@functools.cache
def find_executor(on: str) -> Executor:
    """Return the executor of entries: `local`, `slurm`, `ray`, or the address of a Ray cluster."""
    name = on.partition("://")[0]
    if name not in EXECUTORS:
        raise AlchemyError(f"unknown executor {on!r}", hint=f"one of {', '.join(EXECUTORS)}")
    executor: Executor = resolve(EXECUTORS[name])()
    return executor


class LocalExecutor:
    """The executor of this machine: a supervisor for each attempt."""

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Supervisor | None:
        return start_supervisor(task, file, lambda: is_stop_requested(queue, entry.id))

    def submit(self, queue: Queue) -> None:
        pass

    def is_alive(self, queue: Queue, entry: Entry) -> bool:
        file = lock(queue.path(entry.id, "attempt"))
        if file is not None:
            os.close(file.handle)
        return file is None

    def terminate(self, queue: Queue, entry: Entry) -> None:
        """Send SIGTERM to the command of a running entry, but never to another process with its pid."""
        status = read_status(queue.path(entry.id, "attempt"))
        if status.get("attempt") == entry.attempts[-1].number and "pid" in status and is_alive(status):
            with contextlib.suppress(ProcessLookupError):
                os.kill(status["pid"], signal.SIGTERM)

    def describe(self, queue: Queue, entry: Entry) -> str:
        return ""


def has_running_record(records: list[Path]) -> bool:
    """Return whether a run still writes to its record, for example as the only survivor of several processes."""
    return any(status_of(record) == "running" for record in records)


def is_stop_requested(queue: Queue, id: int) -> bool:
    """Return whether somebody has asked for a running entry to stop."""
    with contextlib.suppress(AlchemyError):
        return bool(queue.get(id).then)
    return False
