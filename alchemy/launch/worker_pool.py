"""Run jobs in separate processes, one per slot at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from alchemy.launch.signals import handle_signals

Job = Callable[..., Any]


class LostJob(NamedTuple):
    """The result of a job whose process returned nothing."""

    exit_code: int | None  # None if it was never started
    signal: int | None = None  # the signal that stopped all jobs

    def __str__(self) -> str:
        if self.exit_code is None:
            return "not started"
        if self.exit_code < 0:
            return f"its process was killed by {signal.Signals(-self.exit_code).name}"
        return f"its process ended with exit code {self.exit_code} without a result"


def run_all(
    job: Job,
    calls: Sequence[tuple[Any, ...]],
    places: Sequence[Any],
    on_signal: Callable[[int], object] = lambda number: None,
) -> list[Any]:
    """Run `job(*call, place)` in a spawned process for each call; return the results in the order of the calls.

    A process that dies yields a `LostJob` and does not affect the others. On the first Ctrl-C or SIGTERM, `on_signal`
    is called, running jobs receive SIGTERM and are awaited, and no further job is started. A second signal kills them.
    """
    assert places, "at least one place is required"
    results: dict[int, Any] = {}
    free, waiting = list(places), list(enumerate(calls))
    running: dict[Any, tuple[int, Any, Any]] = {}
    stopped_by: list[int] = []

    def pass_on(number: int) -> bool:
        stopped_by.append(number)
        on_signal(number)
        for _, process, _ in running.values():
            with contextlib.suppress(ProcessLookupError):  # it has just exited
                os.kill(process.pid, signal.SIGTERM)
        return True

    try:
        with handle_signals(pass_on):
            while (waiting and not stopped_by) or running:
                while free and waiting and not stopped_by:
                    index, call = waiting.pop(0)
                    place = free.pop(0)
                    process, receiver = _start(job, (*call, place))
                    running[receiver] = (index, process, place)
                for ready in wait(list(running)):
                    index, process, place = running.pop(ready)
                    result = _receive(ready, process)
                    results[index] = (
                        result._replace(signal=_first(stopped_by)) if isinstance(result, LostJob) else result
                    )
                    free.append(place)
    finally:
        for _, process, _ in running.values():
            process.kill()
    return [results.get(index, LostJob(None, _first(stopped_by))) for index in range(len(calls))]


def _first(numbers: list[int]) -> int | None:
    return numbers[0] if numbers else None


def _start(job: Job, arguments: tuple[Any, ...]) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # not a daemon, since data loaders inside the job start workers
    method = multiprocessing.get_start_method(allow_none=True)
    process = context.Process(target=_run_job, args=(sender, job, arguments, list(sys.path), method))
    with _ignore_ctrl_c():
        process.start()
    sender.close()
    return process, receiver


def _run_job(sender: Connection, job: Job, arguments: tuple[Any, ...], path: list[str], method: str | None) -> None:
    sys.path[:] = path
    # spawned processes default to spawn; start loader workers with the same method as a single run
    multiprocessing.set_start_method(method, force=True)
    # separate process group: the parent forwards signals from the terminal, once
    os.setpgrp()
    threading.Thread(target=_end_with_parent, name="alchemy-parent", daemon=True).start()
    with sender:
        sender.send(job(*arguments))


@contextlib.contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Make processes started in this context ignore Ctrl-C during imports, where it would only cause a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent() -> None:
    """Terminate this process when its parent exits, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _receive(connection: Any, process: Any) -> Any:
    with connection:
        try:
            result = connection.recv()
        except EOFError:
            process.join()
            return LostJob(process.exitcode)
    process.join()
    return result
