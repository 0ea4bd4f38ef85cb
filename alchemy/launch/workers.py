"""Several jobs in processes of their own, as many at once as there are places."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

Job = Callable[..., Any]


class Lost(NamedTuple):
    """What comes back for a job whose process died without an answer."""

    exit_code: int

    def __str__(self) -> str:
        if self.exit_code < 0:
            return f"its process was killed by {signal.Signals(-self.exit_code).name}"
        return f"its process ended with exit code {self.exit_code} and no answer"


def run_all(job: Job, calls: Sequence[tuple[Any, ...]], places: Sequence[Any]) -> list[Any]:
    """Calls `job(*call, place)` for every call in a spawned process; answers come back in the order of the calls.

    A process that dies gives a `Lost`; it disturbs no other. Ctrl-C is passed on, and everybody is waited for.
    """
    answers: dict[int, Any] = {}
    free, waiting = list(places), list(enumerate(calls))
    running: dict[Any, tuple[int, Any, Any]] = {}
    try:
        while waiting or running:
            while free and waiting:
                index, call = waiting.pop(0)
                place = free.pop(0)
                process, answer = _start(job, (*call, place))
                running[answer] = (index, process, place)
            for ready in wait(list(running)):
                index, process, place = running.pop(ready)
                answers[index] = _receive(ready, process)
                free.append(place)
    except KeyboardInterrupt:
        # the terminal has sent the signal to the children too: give them time to close their records
        for connection, (index, process, _) in running.items():
            answers[index] = _receive(connection, process)
        raise
    finally:
        for _, process, _ in running.values():
            if process.is_alive():
                process.terminate()
    return [answers[index] for index in range(len(calls))]


def _start(job: Job, arguments: tuple[Any, ...]) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    # not a daemon: loaders inside the job start workers of their own
    process = context.Process(target=_answer, args=(sender, job, arguments, list(sys.path)))
    process.start()
    sender.close()
    return process, receiver


def _answer(sender: Connection, job: Job, arguments: tuple[Any, ...], path: list[str]) -> None:
    sys.path[:] = path
    with sender:
        sender.send(job(*arguments))


def _receive(connection: Any, process: Any) -> Any:
    with connection:
        try:
            answer = connection.recv()
        except EOFError:
            process.join()
            return Lost(process.exitcode)
    process.join()
    return answer


def places(devices: Sequence[Any], per_device: int) -> Iterator[Any]:
    """Every device as many times as runs may share it, round by round."""
    for _ in range(max(per_device, 1)):
        yield from devices
