"""What an attempt runs, and the next state of its entry when it has ended."""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.checkpoint.manifest import checkpoints
from alchemy.config.secrets import hide_words
from alchemy.files import open_to_read
from alchemy.launch.project_imports import describe_changes
from alchemy.queue.entry import (
    DONE,
    FAILED,
    HELD,
    REMOVED,
    RUNNING,
    WAITING,
    Entry,
    is_kept,
    read_option,
    release,
    split_command,
)
from alchemy.queue.executor import find_executor, has_running_record
from alchemy.queue.folder import MissingEntry, Queue
from alchemy.queue.locked_file import read_status
from alchemy.queue.supervisor import NOT_STARTED, Task
from alchemy.records.create_folder import QUEUE_RECORDS
from alchemy.records.status import boot_id, now, try_read_info

SHORTEST_PAUSE, LONGEST_PAUSE, MOST_DOUBLINGS = 10.0, 600.0, 6  # seconds before a retry
STOP_CODES = (-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGTERM)
NODE_LOST = os.EX_TEMPFAIL  # exit code of the driver of a run on a Ray cluster that has lost the machine
NEVER_RETRIED = (2, 126, NOT_STARTED)  # a usage error, and a command that cannot be started
LOG_TAIL = 8192  # bytes of the log that are searched for the cause of a failure
HEADER = "=== attempt"
_ERROR = re.compile(r"(?:error:|\d\d:\d\d:\d\d ERROR) +(.+)")
_PROGRESS = re.compile(r"\d\d:\d\d:\d\d (?:INFO|DEBUG) ")  # does not say why a run was killed
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception)\b")  # the last line of a traceback
LOST, STOPPED = "lost", "stopped"  # outcomes of an attempt: its end is unknown; it was asked to end


class End(NamedTuple):
    """How an attempt ended; `exit_code` is None if it is unknown."""

    exit_code: int | None
    ended: str
    timed_out: bool = False
    cancelled: bool = False  # by a user of the cluster that ran it
    reason: str = ""  # as reported by the executor
    finished: bool = False  # the record says so
    cause: str = ""  # of a failure, according to the record and the log


def plan_command(entry: Entry, records: list[Path]) -> tuple[str, ...] | None:
    """Return the command of the next attempt; None if there is nothing left to do.

    A run resumes its record; if that has no checkpoint, it starts from the beginning, with a new record.
    """
    program, words = split_command(entry.argv)
    if words[:1] != ("run",):
        return entry.argv
    record = find_training(records)
    if record is None:
        return entry.argv
    if is_finished(try_read_info(record)):
        if not {"--test", "--predict"} & set(words):
            return None
    elif not checkpoints(record / "state") or any(word.startswith("--overfit") for word in words):
        return entry.argv  # `alchemy run` does not resume a sanity check
    return (*program, *words, "--resume", str(record))


def has_failed(entry: Entry) -> bool:
    """Return whether the latest attempt of an entry has failed."""
    return bool(entry.attempts) and entry.attempts[-1].outcome == FAILED


def find_training(records: list[Path]) -> Path | None:
    """Return the latest record that can be resumed, or None.

    The evaluation of a trained model cannot, nor a run that was killed before its training started.
    """
    for record in reversed(records):
        info = try_read_info(record)
        if info.get("kind", "train") == "train" and info.get("versions") and (record / "cfg.toml").is_file():
            return record
    return None


def find_code_changes(entry: Entry, record: Path) -> list[str]:
    """Return what has changed in the code of an entry since its record was written: `src/model.py has changed`."""
    user_dir = os.path.join(entry.cwd, read_option(entry.argv, "--user-dir", "src"))
    return describe_changes(try_read_info(record).get("code") or {}, user_dir)


def release_entry(queue: Queue, id: int, *, restart: bool = False) -> None:
    """Let an entry start that is held, has failed or waits; `restart` starts it from the beginning, in a new record."""
    if restart:
        queue.path(id, "records").unlink(missing_ok=True)
    queue.update(id, release)


def make_task(
    queue: Queue, entry: Entry, argv: tuple[str, ...], env: Mapping[str, str], more: Mapping[str, str]
) -> Task:
    """Return what an attempt runs; starts its part of the log. `env` is the environment of whoever runs it."""
    attempt, log = entry.attempts[-1], queue.path(entry.id, "log")
    with open(log, "a", encoding="utf-8", errors="replace") as out:
        out.write(f"{HEADER} {attempt.number}, {attempt.started}: {shlex.join(hide_words(argv))}\n")
    kept = {name: value for name, value in env.items() if not is_kept(name)}
    own = {QUEUE_RECORDS: str(queue.path(entry.id, "records")), "PYTHONUNBUFFERED": "1"}
    return Task(attempt.number, argv, entry.cwd, {**kept, **own, **entry.env, **more}, log, entry.needs.seconds)


def is_finished(info: Mapping[str, Any]) -> bool:
    return info.get("status") == "finished" and not info.get("unsaved")


def settle(queue: Queue, entry: Entry) -> Entry | None:
    """Update a running entry if its attempt has ended; return the updated entry, or None if it is still running."""
    path, number = queue.path(entry.id, "attempt"), entry.attempts[-1].number
    end = _read_end(path, number)
    if end is None:
        if find_executor(entry.on).is_alive(queue, entry):
            return None
        # nobody is left who could write the file, but it may have been written since it was read
        end = _read_end(path, number) or End(None, now())
    records = queue.list_records(entry.id)
    if has_running_record(records):
        return None
    info = try_read_info(records[-1]) if records else {}
    cause = explain_failure(queue, entry, end.exit_code, info)
    end = end._replace(finished=plan_command(entry, records) is None, cause=cause)
    return queue.update(entry.id, lambda entry: conclude(entry, end, number))


def _read_end(path: Path, number: int) -> End | None:
    status = read_status(path)
    if status.get("attempt") != number or "exit_code" not in status:
        return None
    ways = (status.get("timed_out", False), status.get("cancelled", False))
    return End(status["exit_code"], status.get("ended", now()), *ways, reason=status.get("error", ""))


def conclude(entry: Entry, end: End, number: int) -> Entry:
    """Return an entry after its attempt has ended."""
    if entry.state != RUNNING or entry.attempts[-1].number != number:  # somebody else was faster
        return entry
    outcome, state = _judge(entry, end)
    attempt = replace(entry.attempts[-1], ended=end.ended, exit_code=end.exit_code, outcome=outcome)
    failures = entry.failures + (outcome == FAILED)
    # the first lost attempt is repeated at once; a command that takes the machine down with it must not do so forever
    lost = len(list(takewhile(lambda one: one.outcome == LOST, reversed((*entry.attempts[:-1], attempt)))))
    doublings = min({FAILED: failures - 1, LOST: lost - 2}.get(outcome, -1), MOST_DOUBLINGS)
    pause = min(SHORTEST_PAUSE * 2.0**doublings, LONGEST_PAUSE) if doublings >= 0 else 0.0
    limit = f"exceeded its time limit of {entry.needs.seconds:g} s"
    reasons = {"time limit": limit, LOST: "was killed", STOPPED: "was stopped"}
    return replace(
        entry,
        state=state,
        attempts=(*entry.attempts[:-1], attempt),
        failures=failures,
        not_before=time.time() + pause if state == WAITING and pause else 0.0,
        then="",
        reason="" if outcome == DONE else end.reason or reasons.get(outcome, end.cause),
    )


def _judge(entry: Entry, end: End) -> tuple[str, str]:
    """Return the outcome of an attempt, and the next state of its entry."""
    if end.exit_code == 0 or end.finished:
        return DONE, entry.then if entry.then == REMOVED else DONE
    if entry.then:
        return STOPPED, entry.then
    if end.cancelled:
        return STOPPED, HELD
    if end.timed_out:
        return "time limit", FAILED
    if end.exit_code == NODE_LOST and entry.on.startswith("ray"):
        return LOST, WAITING
    if end.exit_code is None:  # a reboot, or everything was killed: not the fault of the command
        return LOST, WAITING
    if end.exit_code in STOP_CODES:  # by `alchemy stop`, which means it; by a shutdown, which does not
        return STOPPED, WAITING if entry.attempts[-1].boot_id != boot_id() else HELD
    if end.exit_code in NEVER_RETRIED or entry.failures >= entry.retries:
        return FAILED, FAILED
    return FAILED, WAITING


def explain_failure(queue: Queue, entry: Entry, code: int | None, info: Mapping[str, Any]) -> str:
    """Return the cause of a failure: the reason in the record, or else the exit code and a line of the log."""
    started = entry.attempts[-1].started  # a record may tell of an earlier attempt
    if info.get("status") == "failed" and info.get("reason") and (info.get("ended") or "") >= started:
        return str(info["reason"])
    named = {-number.value: f"killed by {number.name}" for number in signal.Signals}
    ending = named.get(code or 0, f"exit code {code}")
    try:
        with open_to_read(queue.path(entry.id, "log")) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ending
    lines = text.rpartition(HEADER)[2].splitlines()[1:] if HEADER in text else text.splitlines()
    lines = [line.strip() for line in reversed(lines) if line.strip() and not _PROGRESS.match(line)]
    last = lines[0] if lines else ""
    if not _EXCEPTION.match(last):  # `alchemy run` prints a summary after its errors
        following = ["", *lines]  # on the next line, because the lines are reversed
        errors = ((match[1], after) for line, after in zip(lines, following) if (match := _ERROR.match(line)))
        last = next((f"{text} {after}" if text.endswith(":") else text for text, after in errors), last)
    return f"{ending}: {last}" if last else ending


def is_paused(queue: Queue, entry: Entry) -> bool:
    """Return whether an entry has to wait before a retry; shorten the wait if the clock has been set back."""
    latest = time.time() + LONGEST_PAUSE
    if entry.not_before > latest:
        queue.update(entry.id, lambda entry: replace(entry, not_before=min(entry.not_before, latest)))
    return entry.not_before > time.time()


def stop_entry(queue: Queue, id: int, then: str = HELD) -> Entry:
    """Stop a running entry: its command gets SIGTERM, and the entry becomes `then` when it has ended.

    A waiting entry becomes `then` at once. Does not wait for the command.
    """

    def request(entry: Entry) -> Entry:
        if entry.state == RUNNING:
            return replace(entry, then=then)
        return replace(entry, state=then) if entry.state in (WAITING, HELD) or then == REMOVED else entry

    entry = queue.update(id, request)
    if entry.state == RUNNING:
        find_executor(entry.on).terminate(queue, entry)
        try:
            return settle(queue, entry) or entry
        except MissingEntry:  # the worker was faster
            return replace(entry, state=REMOVED)
        except OSError:  # its files cannot be used, as the worker says
            return entry
    return entry
