"""The worker of a queue: starts waiting entries while there are free slots."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.queue.attempts import is_paused, make_task, plan_command, settle
from alchemy.queue.devices import CPU, Slots
from alchemy.queue.entry import DONE, FAILED, HELD, LOCAL, REMOVED, RUNNING, WAITING, Attempt, Entry
from alchemy.queue.executor import find_executor, has_running_record
from alchemy.queue.folder import MissingEntry, Queue
from alchemy.queue.locked_file import LockedFile, lock, read_status
from alchemy.queue.supervisor import Supervisor
from alchemy.records.status import boot_id, is_alive, is_here, now, process_start

POLL = 0.5  # seconds after which new entries, and the end of runs of an earlier worker, are noticed
LONGEST_HANDOVER = 2.0  # seconds that the supervisor of a killed worker takes to close the lock that it has inherited
# errors that concern all entries, and may pass: a full disk, too many processes, too little memory, too many files
EVERYWHERE = (errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
WORKER, DRAIN = "worker", "drain"


class WorkerExists(AlchemyError):
    """Raised if the queue already has a worker."""


class Event(NamedTuple):
    """Something that a worker reports: `kind` is started, ended or problem."""

    kind: str
    entry: Entry | None = None
    text: str = ""


class Worker:
    """Start the entries of a queue, or only those of a group:

        with Worker(queue, Slots(2)) as worker:
            while worker.list_remaining():
                worker.step()

    There is one worker per queue, and another one for each cluster. The worker of a group waits for another one, which
    may run its entries, and takes over when that one has ended. Detached runs outlive their worker: the next one
    continues where a killed one stopped. Other runs are stopped if it is killed.
    """

    def __init__(
        self,
        queue: Queue,
        slots: Slots | None = None,
        group: str | None = None,
        on_event: Callable[[Event], object] = lambda event: None,
        on: str = LOCAL,
        detached: bool = True,
    ) -> None:
        self._has_lock = self._gave_up = False
        self.queue, self.slots, self.group, self.on = queue, slots or Slots(), group, on
        self._detached = detached
        self._executor = find_executor(on)
        self.stopping = False
        self._report = on_event
        self._problems: set[str] = set()
        self._supervisors: dict[int, Supervisor] = {}
        self._stopped: set[int] = set()
        self._unusable: set[int] = set()  # entries whose files cannot be used, as of the last step
        self._exits = ExitStack()
        self._woken, self._wake = -1, -1  # both ends of a pipe that `stop` writes to

    def __enter__(self) -> Worker:
        _open_standard_streams()
        self._woken, self._wake = os.pipe()
        self._exits.callback(self._close_pipe)
        if self.group is None:
            self._take_over()
        return self

    def _take_over(self) -> None:
        with self.queue.lock():
            file = self._exits.enter_context(_lock_worker(self.queue, self.on))
            self._exits.callback(self._leave, file)
            own: dict[str, object] = {"pid": os.getpid(), "pid_started": process_start(os.getpid())}
            own |= {"host": socket.gethostname(), "boot_id": boot_id(), "slots": self.slots.count, "group": self.group}
            file.write(own)
            _path(self.queue, DRAIN, self.on).unlink(missing_ok=True)
            self.queue.remove_leftovers()
        self._has_lock = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a second signal: the command does not wait for the end of its runs
        if isinstance(error, KeyboardInterrupt) and self._has_lock:
            self._stop_running()
        for supervisor in self._supervisors.values():
            os.close(supervisor.ended)
        self._supervisors.clear()
        self._exits.close()

    def _close_pipe(self) -> None:
        ends, self._woken, self._wake = (self._woken, self._wake), -1, -1
        for handle in ends:
            os.close(handle)

    def _leave(self, file: LockedFile) -> None:
        with suppress(OSError):
            file.write({})
        file.unlock()

    def step(self, timeout: float = POLL) -> bool:
        """Settle what has ended and start what fits; if there is nothing to do, wait. Return whether anything was done.

        A wait ends when a run ends.
        """
        if not self._has_lock:
            try:
                self._take_over()
            except WorkerExists:  # which runs the entries, or ends some day
                other = find_worker(self.queue, self.on)
                serves = other.get("group") in (None, self.group)
                text = "the runs are started by" if serves else "waiting for"
                self._report_once(f"{text} the worker of the queue, process {other.get('pid', 'unknown')}")
                time.sleep(timeout)
                return False
        if not _path(self.queue, WORKER, self.on).exists():
            raise AlchemyError(f"the queue {self.queue.folder} was deleted", hint="start the worker again")
        try:
            if self.stopping:
                self._stop_running()
            entries = self.queue.list()
            done = self._settle_ended(entries)
            if not self.stopping and not self.is_draining:
                done = self._start_waiting(self.queue.list() if done else entries) or done
        except MissingEntry:  # it has just been removed
            done = True
        except (AlchemyError, OSError) as error:  # a full disk, for example: tried again at the next step
            self._report_once(str(error))
            self._gave_up = self.stopping and not self._supervisors  # the next worker reads how the runs have ended
            done = False
        if not done:
            waking = [] if self.stopping else [self._woken]
            select.select([*waking, *(supervisor.ended for supervisor in self._supervisors.values())], [], [], timeout)
        return done

    def stop(self) -> None:
        """Start nothing new; the next step stops running entries, which go back into the queue.

        A signal handler may call it.
        """
        self.stopping = True
        if self._wake >= 0:
            os.write(self._wake, b"x")

    def _stop_running(self) -> None:
        for entry in self.list_running():
            if entry.id not in self._stopped:
                with suppress(AlchemyError):  # on a full disk, it is held when it has ended
                    self.queue.update(entry.id, lambda entry: replace(entry, then=entry.then or WAITING))
                self._executor.terminate(self.queue, entry)
                self._stopped.add(entry.id)

    @property
    def is_draining(self) -> bool:
        """Whether `alchemy queue stop --after-running` was called."""
        return self._has_lock and _path(self.queue, DRAIN, self.on).exists()

    def has_ended(self, *, until_empty: bool = False) -> bool:
        """Return whether the worker has been stopped and its runs have ended, or nothing is left to run."""
        if self.stopping or self.is_draining:
            return not self._has_lock or self._gave_up or not self.list_running()
        return until_empty and not self.list_remaining()

    def list_running(self) -> list[Entry]:
        entries = [entry for entry in self.queue.list(self.group) if entry.state == RUNNING and entry.on == self.on]
        return [entry for entry in entries if entry.id not in self._unusable]

    def list_remaining(self) -> list[Entry]:
        """Return the entries that are running, or that this worker will start without anybody's help."""
        entries = [entry for entry in self.queue.list() if entry.id not in self._unusable]
        done = {entry.id for entry in entries if entry.state == DONE}
        found = {entry.id: entry for entry in entries if self._is_mine(entry, RUNNING)}
        waiting = [entry for entry in entries if self._is_mine(entry) and not self.slots.explain_misfit(entry.needs)]
        while more := {e.id: e for e in waiting if e.id not in found and {*e.after} <= done | found.keys()}:
            found |= more
        return list(found.values())

    def _is_mine(self, entry: Entry, state: str = WAITING) -> bool:
        return entry.state == state and entry.on == self.on and self.group in (None, entry.group)

    def _settle_ended(self, entries: list[Entry]) -> bool:
        ready, _, _ = select.select([supervisor.ended for supervisor in self._supervisors.values()], [], [], 0)
        for id, supervisor in list(self._supervisors.items()):
            if supervisor.ended in ready:
                self._supervisors.pop(id).reap()
        done = False
        running = [entry for entry in entries if entry.state == RUNNING]
        for entry in [entry for entry in running if entry.on == self.on or entry.group == self.group]:
            ended = None
            with self._tolerate(entry):
                ended = None if entry.id in self._supervisors else settle(self.queue, entry)
            if ended is not None:
                self._report(Event("ended", ended))
                done = True
        return done

    def _start_waiting(self, listed: list[Entry]) -> bool:
        """Start entries in order: none overtakes another one that waits for the same kind of device."""
        entries = {entry.id: entry for entry in listed}
        for name, problem in self.queue.damaged.items():
            self._report_once(f"ignoring the damaged entry {self.queue.folder / name}: {problem}")
        running = [entry for entry in entries.values() if entry.state == RUNNING]
        blocked: set[bool] = set()
        done = False
        for entry in entries.values():
            if not self._is_mine(entry) or is_paused(self.queue, entry) or find_obstacle(entry, entries):
                continue
            if misfit := self.slots.explain_misfit(entry.needs):
                self._note(entry, misfit)
                continue
            kind = self.slots.needs_gpu(entry.needs)
            devices = self.slots.place(entry.needs, running) if kind not in blocked else ()
            if not devices:
                blocked.add(kind)
                continue
            with self._tolerate(entry):
                if started := self._start(entry, devices):
                    running += [started] if started.state == RUNNING else []
                    done = True
        self._executor.submit(self.queue)
        return done

    @contextmanager
    def _tolerate(self, entry: Entry) -> Iterator[None]:
        """Note on an entry that its files cannot be used, and go on."""
        try:
            yield
            self._unusable.discard(entry.id)
        except OSError as error:
            if error.errno in EVERYWHERE:
                raise
            self._unusable.add(entry.id)
            self._note(entry, f"its files cannot be used: {error}")

    def _start(self, entry: Entry, devices: tuple[str, ...]) -> Entry | None:
        """Start an entry; return None if it has changed, or a process of its last attempt is still running."""
        queue, records = self.queue, self.queue.list_records(entry.id)
        if has_running_record(records):
            return None
        file = lock(queue.path(entry.id, "attempt"))
        if file is None:
            return None
        with file:
            argv = plan_command(entry, records)
            if argv is None:  # its record was resumed and finished by hand
                done = queue.update(entry.id, lambda entry: replace(entry, state=DONE, reason=""))
                self._report(Event("ended", done))
                return done
            number = entry.attempts[-1].number + 1 if entry.attempts else 1
            file.write({"attempt": number})  # takes the space for the exit code
            attempt = Attempt(number=number, started=now(), device=devices, boot_id=boot_id())
            env = entry.env
            if CPU in devices and not entry.attempts:  # a retry must use the same number of threads
                env = {**self.slots.threads, **entry.env}
            attempts = (*entry.attempts, attempt)
            running = replace(entry, state=RUNNING, attempts=attempts, env=env, reason="", not_before=0.0)
            started = queue.update(entry.id, lambda current: running if current == entry else current)
            if started.state != RUNNING:
                return None
            try:
                task = make_task(queue, started, argv, os.environ, self.slots.environment(devices))
                task = task._replace(detached=self._detached)
                if supervisor := self._executor.start(queue, started, task, file):
                    self._supervisors[entry.id] = supervisor
            except OSError:  # it has not been started
                queue.update(entry.id, lambda now: replace(entry, state=now.then or WAITING))
                raise
        self._report(Event("started", started))
        return started

    def _note(self, entry: Entry, reason: str) -> None:
        if entry.reason != reason:
            self._report(Event("problem", entry, reason))
            self.queue.update(entry.id, lambda entry: replace(entry, reason=reason))

    def _report_once(self, text: str) -> None:
        if text not in self._problems:
            self._problems.add(text)
            self._report(Event("problem", text=text))


def _open_standard_streams() -> None:
    """Open closed standard streams, so that no lock or pipe gets a number that belongs to the command of an entry."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)


def _path(queue: Queue, name: str, on: str) -> Path:
    return queue.folder / (name if on == LOCAL else f"{name}-{re.sub(r'[^a-zA-Z0-9]+', '-', on)}")


def _lock_worker(queue: Queue, on: str) -> LockedFile:
    deadline = time.monotonic() + LONGEST_HANDOVER
    while (file := lock(_path(queue, WORKER, on))) is None:
        refuse_second(queue, on)
        if time.monotonic() > deadline:
            raise WorkerExists(f"the worker of the queue does not end, process {_read_worker(queue, on).get('pid')}")
        time.sleep(0.01)
    return file


def refuse_second(queue: Queue, on: str = LOCAL) -> None:
    """Raise an error if the queue has a worker."""
    if status := find_worker(queue, on):
        only = f", which runs only {status['group']}" if status.get("group") else ""
        stop = "alchemy queue stop" + (f" --on {on}" if on != LOCAL else "")
        text = f"the queue already has a worker, process {status['pid']}{only}"
        raise WorkerExists(text, hint=f"wait until it has ended, or stop it with `{stop}`")


def find_obstacle(entry: Entry, entries: Mapping[int, Entry]) -> str:
    """Return which entries a waiting one has to wait for, or an empty string."""
    states = {id: entries[id].state if id in entries else REMOVED for id in entry.after}
    details = {REMOVED: ", which was removed", FAILED: ", which has failed", HELD: ", which is held"}
    return "; ".join(f"waits for {id}{details.get(state, '')}" for id, state in states.items() if state != DONE)


def drain(queue: Queue, on: str = LOCAL) -> None:
    """Let the worker of a queue end when its runs have ended."""
    with queue.lock():
        _path(queue, DRAIN, on).touch()


def find_worker(queue: Queue, on: str = LOCAL) -> dict[str, Any]:
    """Return the status of the worker of a queue; empty if there is none."""
    status = _read_worker(queue, on)
    return status if "pid" in status and is_here(status) and is_alive(status) else {}


def _read_worker(queue: Queue, on: str) -> dict[str, Any]:
    return read_status(_path(queue, WORKER, on))
