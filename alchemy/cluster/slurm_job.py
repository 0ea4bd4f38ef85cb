"""The part of a Slurm job that runs on a compute node: an attempt that saves and resumes if the job is preempted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from alchemy.cluster.slurm_options import LOCAL_JOB
from alchemy.queue.attempts import STOP_CODES, make_task, plan_command
from alchemy.queue.entry import RUNNING
from alchemy.queue.executor import LocalExecutor, is_stop_requested
from alchemy.queue.folder import Queue
from alchemy.queue.locked_file import LockedFile, read_status
from alchemy.queue.supervisor import run_command, write_end
from alchemy.records.status import SILENT_SECONDS, now, process_start, status_of

POLL = 2.0  # seconds


class SlurmAttempt:
    """An attempt of an entry, called by submitit in the job.

    The project folder, with the queue in it, must be on a file system that the compute nodes share. A job takes no
    locks there: it reads the entry, and is the only one who writes to the file of its attempt.
    """

    def __init__(self, folder: Path, id: int, number: int) -> None:
        self.folder, self.id, self.number = folder, id, number

    def __call__(self) -> None:
        queue = Queue(self.folder)
        entry = queue.get(self.id)
        if entry.state != RUNNING or entry.attempts[-1].number != self.number:
            return  # it was submitted twice, because the process that submitted it was killed
        file = LockedFile(os.open(queue.path(self.id, "attempt"), os.O_RDWR | os.O_CREAT, 0o600))
        status = {"attempt": self.number, "job": _find_job()}
        file.write(status)  # from now on the queue knows the job, and there is no process of an earlier start
        _wait_for_predecessor(queue.list_records(self.id))
        argv = plan_command(entry, queue.list_records(self.id))
        if argv is None:
            return file.write({**status, "exit_code": 0, "ended": now()})
        threads = {"OMP_NUM_THREADS": os.environ.get("SLURM_CPUS_PER_TASK", "1")}
        task = make_task(queue, entry, argv, {**os.environ, **threads}, {**threads, **entry.env})
        _redirect(task.log)
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # until `run_command` forwards it
        threading.Thread(target=_follow, args=(queue, self.id), daemon=True).start()
        end = run_command(task, file, lambda: is_stop_requested(queue, self.id), status)
        by_slurm = end["exit_code"] in STOP_CODES and not end["timed_out"] and not is_stop_requested(queue, self.id)
        write_end(file, status if by_slurm else end)  # Slurm may start the job again

    def checkpoint(self) -> Any:
        """Stop the run, which saves its state; submitit then puts the job back into Slurm's queue."""
        from submitit.helpers import DelayedSubmission

        status = read_status(Queue(self.folder).path(self.id, "attempt"))
        if "pid" in status and "exit_code" not in status:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it has just ended and been reaped
                os.kill(status["pid"], signal.SIGTERM)
                while os.waitid(os.P_PID, status["pid"], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    time.sleep(0.1)
        return DelayedSubmission(self)


def _find_job() -> str:
    from submitit import JobEnvironment

    env = JobEnvironment()
    return env.job_id if env.cluster == "slurm" else name_local_job(int(env.job_id))


def name_local_job(pid: int) -> str:
    """Return the name of a job of submitit's local executor; the start time distinguishes it from later processes."""
    return f"{LOCAL_JOB}{pid}-{process_start(pid)}"


def _wait_for_predecessor(records: list[Path]) -> None:
    """Wait until a record counts as lost that a killed job has left open on another node: a run in use is refused."""
    deadline = time.monotonic() + SILENT_SECONDS + POLL
    while any(status_of(record) == "running" for record in records) and time.monotonic() < deadline:
        time.sleep(POLL)


def _redirect(log: Path) -> None:
    """Write all output of this process, and of those that it starts, to the log of the entry."""
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for target in (1, 2):
        os.dup2(handle, target)


def _follow(queue: Queue, id: int) -> None:
    """Pass on a request to stop, which is written to the entry."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they interrupt the main thread
    while not is_stop_requested(queue, id):
        time.sleep(POLL)
    LocalExecutor().terminate(queue, queue.get(id))
