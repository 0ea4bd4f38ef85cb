"""Runs entries of the queue as jobs of a Slurm cluster."""

from __future__ import annotations

import getpass
import itertools
import json
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from alchemy.cluster.slurm_options import DEFAULTS, LOCAL_JOB, is_rehearsal
from alchemy.queue.entry import Entry
from alchemy.queue.folder import Queue
from alchemy.queue.keeper import NOT_STARTED, Keeper, Task
from alchemy.queue.locked_file import LockedFile, lock, read_status
from alchemy.records.status import now, process_start

MAX_TIMEOUTS = 1000  # how often a job is put back into Slurm's queue when its time is over
FRESH_SECONDS = 5.0  # how long an answer of squeue is used
GONE_SECONDS = 30.0  # until a job that is not in squeue counts as lost: its last writes may take a while to be visible
SQUEUE_SECONDS = 30.0


class SlurmExecutor:
    """Submits attempts through submitit; what is submitted together, with the same options, is a job array."""

    def __init__(self) -> None:
        self._collected: list[Entry] = []
        self._states: tuple[float, dict[str, str] | None] = (-FRESH_SECONDS, None)
        self._missing: dict[tuple[int, int], float] = {}  # entry and attempt -> since when its job is gone

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Keeper | None:
        self._collected.append(entry)
        return None

    def submit(self, queue: Queue) -> None:
        entries, self._collected = self._collected, []
        entries.sort(key=_format_options)  # stable, so that the order within an array is kept
        for _, group in itertools.groupby(entries, _format_options):
            batch = list(group)
            try:
                jobs = _submit(queue, batch)
            except Exception as error:  # sbatch has refused it, or is not there
                for entry in batch:
                    _write_failure(queue, entry, _explain(error))
                continue
            for entry, job in zip(batch, jobs):
                number = entry.attempts[-1].number
                queue.update(entry.id, lambda entry, job=job, number=number: _add_job(entry, job, number))  # type: ignore[misc]

    def is_alive(self, queue: Queue, entry: Entry) -> bool:
        state, key = self._find_state(queue, entry), (entry.id, entry.attempts[-1].number)
        if state:
            self._missing.pop(key, None)
            return True
        since = self._missing.setdefault(key, time.monotonic())
        return not _find_job(queue, entry).startswith(LOCAL_JOB) and time.monotonic() - since < GONE_SECONDS

    def terminate(self, queue: Queue, entry: Entry) -> None:
        """Cancel a job that has not started; one that is running reads the request to stop from the entry."""
        job = _find_job(queue, entry)
        if job and not job.startswith(LOCAL_JOB):
            with suppress(OSError, subprocess.SubprocessError):
                command = ["scancel", "--state=PENDING", job]
                subprocess.run(command, capture_output=True, timeout=SQUEUE_SECONDS, check=True)

    def describe(self, queue: Queue, entry: Entry) -> str:
        return f"job {_find_job(queue, entry) or 'unknown'}: {self._find_state(queue, entry) or 'gone'}"

    def _find_state(self, queue: Queue, entry: Entry) -> str:
        """Return the state of the job of an entry; an empty string if there is no such job."""
        job = _find_job(queue, entry)
        if job.startswith(LOCAL_JOB):
            pid, _, started = job.removeprefix(LOCAL_JOB).partition("-")
            return "RUNNING" if str(process_start(int(pid))) == started else ""
        if time.monotonic() - self._states[0] > FRESH_SECONDS:
            self._states = (time.monotonic(), _read_squeue())
        states = self._states[1]
        return "UNKNOWN (squeue does not answer)" if states is None else states.get(job, "")


def _submit(queue: Queue, entries: list[Entry]) -> list[str]:
    """Submit the attempts of entries with the same options; return the names of their jobs."""
    import submitit

    from alchemy.cluster.slurm_job import SlurmAttempt, name_local_job

    options = {**DEFAULTS, **entries[0].options}
    executor: Any
    if is_rehearsal():
        executor = submitit.LocalExecutor(queue.folder / "slurm", max_num_timeout=MAX_TIMEOUTS)
        delay = options.get("signal_delay_s", 30)
        executor.update_parameters(timeout_min=options["time"], signal_delay_s=delay, stderr_to_stdout=True)
    else:
        executor = submitit.SlurmExecutor(queue.folder / "slurm", max_num_timeout=MAX_TIMEOUTS)
        executor.update_parameters(**options)
    with executor.batch():
        jobs = [executor.submit(SlurmAttempt(queue.folder, entry.id, entry.attempts[-1].number)) for entry in entries]
    return [name_local_job(int(job.job_id)) if is_rehearsal() else job.job_id for job in jobs]


def _format_options(entry: Entry) -> str:
    return json.dumps(entry.options, sort_keys=True)


def _add_job(entry: Entry, job: str, number: int) -> Entry:
    if not entry.attempts or entry.attempts[-1].number != number:
        return entry
    return replace(entry, attempts=(*entry.attempts[:-1], replace(entry.attempts[-1], job=job)))


def _find_job(queue: Queue, entry: Entry) -> str:
    """Return the job of an entry; the job itself knows it, even if the process that submitted it was killed."""
    attempt = entry.attempts[-1]
    status = read_status(queue.path(entry.id, "attempt"))
    return attempt.job or (str(status.get("job", "")) if status.get("attempt") == attempt.number else "")


def _write_failure(queue: Queue, entry: Entry, text: str) -> None:
    end = {"attempt": entry.attempts[-1].number, "exit_code": NOT_STARTED, "error": text, "ended": now()}
    file = lock(queue.path(entry.id, "attempt"), wait=True)
    assert file is not None, "locking waits"
    with file:
        file.write(end)


def _explain(error: Exception) -> str:
    """Return the message of sbatch, without the traceback that submitit puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("sbatch: error: ")]
    text = (told or lines or [type(error).__name__])[0 if told else -1].removeprefix("sbatch: error: ")
    return f"Slurm has refused the job: {text}"[:500]


def _read_squeue() -> dict[str, str] | None:
    """Return the states of all jobs of this user; None if squeue does not answer."""
    command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i|%T|%r"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SQUEUE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(_parse_squeue(answer.stdout.splitlines()))


def _parse_squeue(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        job, state, reason = [*line.strip().split("|"), "", ""][:3]
        yield job, state if reason in ("", "None") else f"{state} ({reason})"
