"""Runs entries of the queue on a Ray cluster: a keeper of this machine keeps the driver of each run."""

from __future__ import annotations

import sys

from alchemy.errors import AlchemyError
from alchemy.queue.entry import Entry
from alchemy.queue.executor import Keepers
from alchemy.queue.folder import Queue
from alchemy.queue.keeper import Keeper, Task
from alchemy.queue.locked_file import LockedFile


class RayExecutor:
    """Starts a driver instead of the command.

    The driver stands for the run on this machine: it prints the output of the run, passes SIGTERM on to it, and ends
    with its exit code. So everything else is as if the run were here.
    """

    def __init__(self) -> None:
        self.address = ""  # of a cluster that was started on this machine
        self._keepers = Keepers()

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Keeper | None:
        address = self.address if entry.on == "ray" else entry.on
        if not address:
            raise AlchemyError("there is no Ray cluster on this machine", hint="`alchemy queue start --on ray`")
        driver = (sys.executable, "-m", "alchemy.cluster.ray_driver", address, str(queue.folder), str(entry.id))
        return self._keepers.start(queue, entry, task._replace(argv=(*driver, *task.argv)), file)

    def submit(self, queue: Queue) -> None:
        pass

    def is_alive(self, queue: Queue, entry: Entry) -> bool:
        return self._keepers.is_alive(queue, entry)

    def terminate(self, queue: Queue, entry: Entry) -> None:
        self._keepers.terminate(queue, entry)

    def describe(self, queue: Queue, entry: Entry) -> str:
        return self._keepers.describe(queue, entry)
