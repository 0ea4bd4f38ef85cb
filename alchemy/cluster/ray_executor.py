"""Runs entries of the queue on a Ray cluster: a supervisor on this machine runs the driver of each run."""

from __future__ import annotations

import sys

from alchemy.errors import AlchemyError
from alchemy.queue.entry import Entry
from alchemy.queue.executor import LocalExecutor
from alchemy.queue.folder import Queue
from alchemy.queue.locked_file import LockedFile
from alchemy.queue.supervisor import Supervisor, Task


class RayExecutor(LocalExecutor):
    """Starts a driver instead of the command.

    The driver represents the run on this machine: it prints the output of the run, passes SIGTERM on to it, and ends
    with its exit code. So everything else is as if the run were here.
    """

    def __init__(self) -> None:
        self.address = ""  # of a cluster that was started on this machine

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Supervisor | None:
        address = self.address if entry.on == "ray" else entry.on
        if not address:
            raise AlchemyError("there is no Ray cluster on this machine", hint="`alchemy queue start --on ray`")
        driver = (sys.executable, "-m", "alchemy.cluster.ray_driver", address, str(queue.folder), str(entry.id))
        return super().start(queue, entry, task._replace(argv=(*driver, *task.argv)), file)
