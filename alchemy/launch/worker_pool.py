"""Several jobs in processes of their own, as many at once as there are places."""

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
    """What comes back for a job whose process gave no answer."""

    exit_code: int | None  # None: it was never started
    signal: int | None = None  # the signal that ended all of them

    def __str__(self) -> str:
        if self.exit_code is None:
            return "it was not started, since the runs were interrupted"
        if self.exit_code < 0:
            return f"its process was killed by {signal.Signals(-self.exit_code).name}"
        return f"its process ended with exit code {self.exit_code} and no answer"


def run_all(
    job: Job,
    calls: Sequence[tuple[Any, ...]],
    places: Sequence[Any],
    told: Callable[[int], object] = lambda number: None,
) -> list[Any]:
    """Calls `job(*call, place)` for every call in a spawned process; answers come back in the order of the calls.

    A process that dies gives a `LostJob`; it disturbs no other. The first Ctrl-C or SIGTERM is `told`, the running ones
    get a SIGTERM, no further one is started, and they are waited for; a second signal ends them at once.
    """
    assert places, "without a place no job would ever start"
    answers: dict[int, Any] = {}
    free, waiting = list(places), list(enumerate(calls))
    running: dict[Any, tuple[int, Any, Any]] = {}
    stopped_by: list[int] = []

    def pass_on(number: int) -> bool:
        stopped_by.append(number)
        told(number)
        for _, process, _ in running.values():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
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
                    answer = _receive(ready, process)
                    answers[index] = (
                        answer._replace(signal=_first(stopped_by)) if isinstance(answer, LostJob) else answer
                    )
                    free.append(place)
    finally:
        for _, process, _ in running.values():
            process.kill()
    return [answers.get(index, LostJob(None, _first(stopped_by))) for index in range(len(calls))]


def _first(numbers: list[int]) -> int | None:
    return numbers[0] if numbers else None


def _start(job: Job, arguments: tuple[Any, ...]) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # not a daemon: loaders inside the job start workers of their own
    method = multiprocessing.get_start_method(allow_none=True)
    process = context.Process(target=_answer, args=(sender, job, arguments, list(sys.path), method))
    with _ctrl_c_ignored():
        process.start()
    sender.close()
    return process, receiver


def _answer(sender: Connection, job: Job, arguments: tuple[Any, ...], path: list[str], method: str | None) -> None:
    sys.path[:] = path
    # a spawned process would spawn in its turn: loader workers should start as they do in a single run
    multiprocessing.set_start_method(method, force=True)
    # out of the terminal's group: what the terminal sends comes through the parent, once
    os.setpgrp()
    threading.Thread(target=_end_with_parent, name="alchemy-parent", daemon=True).start()
    with sender:
        sender.send(job(*arguments))


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """A process started in here ignores Ctrl-C while it imports, where it could only die with a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent() -> None:
    """Asks this process to end when its parent is gone, even if that was killed without a word."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _receive(connection: Any, process: Any) -> Any:
    with connection:
        try:
            answer = connection.recv()
        except EOFError:
            process.join()
            return LostJob(process.exitcode)
    process.join()
    return answer
