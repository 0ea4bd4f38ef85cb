"""Runs entries of the queue as jobs of a Slurm cluster."""

from __future__ import annotations

import datetime
import functools
import getpass
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from alchemy.cluster.slurm_options import DEFAULTS, LOCAL_JOB, is_rehearsal
from alchemy.optional_packages import is_installed
from alchemy.queue.entry import RUNNING, Entry
from alchemy.queue.folder import Queue
from alchemy.queue.locked_file import LockedFile, lock, read_status
from alchemy.queue.supervisor import LONGEST_ERROR, NOT_STARTED, Supervisor, Task
from alchemy.records.status import now, process_start

MAX_TIMEOUTS = 1000  # how often a job is put back into Slurm's queue when its time is over
FRESH_SECONDS = 5.0  # how long an answer of squeue is used
GONE_SECONDS = 30.0  # until a job that is not in squeue counts as lost: its last writes may take a while to be visible
SQUEUE_SECONDS = 30.0
NOT_SHARED = "no output; do the compute nodes share the folder of the project?"
# a job in another state is alive until squeue forgets it, a few minutes after it has ended
FINAL_STATES = ("COMPLETED", "CANCELLED", "FAILED", "PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")


class SlurmExecutor:
    """Submits attempts through submitit; what is submitted together, with the same options, is a job array."""

    def __init__(self) -> None:
        self._collected: list[Entry] = []
        self._states: tuple[float, dict[str, str] | None] = (-FRESH_SECONDS, None)

    def start(self, queue: Queue, entry: Entry, task: Task, file: LockedFile) -> Supervisor | None:
        self._collected.append(entry)
        return None

    def submit(self, queue: Queue) -> None:
        entries, self._collected = self._collected, []
        if entries:
            self._remove_files(queue)
            self._states = (-FRESH_SECONDS, None)  # they do not include the new jobs
        entries.sort(key=_format_options)  # stable, so that the order within an array is kept
        for _, group in itertools.groupby(entries, _format_options):
            batch = list(group)
            try:
                jobs = _submit(queue, batch)
            except Exception as error:  # sbatch has refused it, or is missing
                for entry in batch:
                    _write_end(queue, entry, exit_code=NOT_STARTED, error=_explain(error))
                continue
            for entry, job in zip(batch, jobs):
                number = entry.attempts[-1].number
                queue.update(entry.id, functools.partial(_change_attempt, number=number, job=job))

    def is_alive(self, queue: Queue, entry: Entry) -> bool:
        attempt, job, state = entry.attempts[-1], _find_job(queue, entry), self._find_state(queue, entry)
        is_gone = not state or _is_final(state)
        if is_gone != bool(attempt.ended):  # stored, because `alchemy queue ls` sees only a moment
            ended = now() if is_gone else ""
            entry = queue.update(entry.id, lambda entry: _change_attempt(entry, attempt.number, ended=ended))
        if not is_gone or entry.attempts[-1].number != attempt.number:
            return True
        is_certain = job.startswith(LOCAL_JOB) or state.startswith(("CANCELLED", "FAILED"))
        if not is_certain and _seconds_since(entry.attempts[-1].ended) < GONE_SECONDS:
            return True
        _write_job_end(queue, entry, job, state)
        return False

    def terminate(self, queue: Queue, entry: Entry) -> None:
        """Cancel a job that has not started; one that is running reads the request to stop from the entry."""
        job = _find_job(queue, entry)
        if job and not job.startswith(LOCAL_JOB):
            _ask("scancel", "--state=PENDING", job)

    def describe(self, queue: Queue, entry: Entry) -> str:
        state = self._find_state(queue, entry) or "gone; a worker submits it again"
        return f"job {_find_job(queue, entry) or 'unknown'}: {state}"

    def _find_state(self, queue: Queue, entry: Entry) -> str:
        """Return the state of the job of an entry; an empty string if there is no such job."""
        job = _find_job(queue, entry)
        if job.startswith(LOCAL_JOB):
            pid, _, started = job.removeprefix(LOCAL_JOB).partition("-")
            return "RUNNING" if str(process_start(int(pid))) == started else ""
        states = self._list_states()
        if states is None:
            return "UNKNOWN (squeue does not answer)"
        if job and job not in states:
            states |= {job: "", **_read_sacct(job), **states}
        return states.get(job, "")

    def _list_states(self) -> dict[str, str] | None:
        if time.monotonic() - self._states[0] > FRESH_SECONDS:
            self._states = (time.monotonic(), _read_squeue())
        return self._states[1]

    def _remove_files(self, queue: Queue) -> None:
        """Remove submitit's files of jobs that Slurm has forgotten, unless an entry waits for the end of its job."""
        states = self._list_states()
        if states is None:
            return
        running = [entry for entry in queue.list() if entry.state == RUNNING and entry.on == "slurm"]
        kept = {_find_number(job) for job in (*states, *(_find_job(queue, entry) for entry in running))}
        for path in (queue.folder / "slurm").glob("*"):
            if _find_number(path.name) not in kept:
                with suppress(OSError):
                    path.unlink()


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


def _change_attempt(entry: Entry, number: int, **values: Any) -> Entry:
    if not entry.attempts or entry.attempts[-1].number != number:
        return entry
    return replace(entry, attempts=(*entry.attempts[:-1], replace(entry.attempts[-1], **values)))


def _seconds_since(moment: str) -> float:
    return (datetime.datetime.now().astimezone() - datetime.datetime.fromisoformat(moment)).total_seconds()


def _find_job(queue: Queue, entry: Entry) -> str:
    """Return the job of an entry; the job itself knows it, even if the process that submitted it was killed."""
    attempt = entry.attempts[-1]
    status = read_status(queue.path(entry.id, "attempt"))
    return attempt.job or (str(status.get("job", "")) if status.get("attempt") == attempt.number else "")


def _write_end(queue: Queue, entry: Entry, **end: object) -> None:
    """Write how an attempt ended, unless its job has written it."""
    path = queue.path(entry.id, "attempt")
    file = lock(path, wait=True)
    assert file is not None, "locking waits"
    with file:
        if "exit_code" not in read_status(path):
            file.write({"attempt": entry.attempts[-1].number, "ended": now(), **end})


def _write_job_end(queue: Queue, entry: Entry, job: str, state: str) -> None:
    """Write how an attempt ended if its job was cancelled, or ended before the run started; any other one is lost."""
    if state.startswith("CANCELLED"):
        _write_end(queue, entry, exit_code=None, cancelled=True, error=f"its Slurm job {job} was cancelled")
    elif job and "job" not in read_status(queue.path(entry.id, "attempt")):
        code, silence = (NOT_STARTED, NOT_SHARED) if state.startswith("FAILED") else (None, "no output")
        cause = _keep_output(queue, entry, job) or silence
        text = f"its Slurm job {job} ended before the run started ({state.partition(' ')[0] or 'gone'}): {cause}"
        _write_end(queue, entry, exit_code=code, error=text[:LONGEST_ERROR])


def _keep_output(queue: Queue, entry: Entry, job: str) -> str:
    """Append the output of a job to the log of its entry; return the line that says what went wrong."""
    text, name = "", job.removeprefix(LOCAL_JOB).partition("-")[0]
    with suppress(OSError):
        text = (queue.folder / "slurm" / f"{name}_0_log.out").read_text("utf-8", errors="replace")
    with open(queue.path(entry.id, "log"), "a", encoding="utf-8") as log:
        log.write(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(("srun: ", "submitit "))]  # these do not say why
    return (causes or lines or [""])[-1]


def _find_number(name: str) -> str:
    """Return the number in the name of a job or of its files: that of its array, or the pid of a local job."""
    return re.split("[_-]", name.removeprefix(LOCAL_JOB))[0]


def _explain(error: Exception) -> str:
    """Return the message of sbatch, without the traceback that submitit puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("sbatch: error: ")]
    text = (told or lines or [type(error).__name__])[0 if told else -1].removeprefix("sbatch: error: ")
    return f"Slurm has refused the job: {text}"[:500]


def _read_squeue() -> dict[str, str] | None:
    """Return the states of all jobs of this user that Slurm has not forgotten; None if squeue does not answer."""
    mine = ("--user", getpass.getuser(), "--states=all", "--array")
    answer = _ask("squeue", *mine, "--noheader", "--format", "%i|%T|%r")
    return None if answer is None else dict(_parse_squeue(answer.splitlines()))


def _parse_squeue(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        job, state, reason = [*line.strip().split("|"), "", ""][:3]
        yield job, state if reason in ("", "None") else f"{state} ({reason})"


def _read_sacct(job: str) -> dict[str, str]:
    """Return the final states of a job, and of the others in its array; empty if Slurm keeps no accounts."""
    if not is_installed("submitit"):
        return {}
    from submitit.slurm.slurm import SlurmInfoWatcher

    command = ("sacct", "--allocations", "--parsable2", "--format", "JobID,State")
    rows = SlurmInfoWatcher().read_info(_ask(*command, "--jobs", _find_number(job)) or "")
    return {name: row["State"] for name, row in rows.items() if _is_final(row["State"])}


def _ask(*command: str) -> str | None:
    """Return the answer of a command of Slurm; None if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SQUEUE_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _is_final(state: str) -> bool:
    return state.startswith(FINAL_STATES)
