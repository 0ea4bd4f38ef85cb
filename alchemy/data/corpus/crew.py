"""Processes that work through pieces side by side, each with a memory of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from alchemy.errors import AlchemyError


class Crew:
    """`count` processes, each with a worker made by `make`; with one, all is done in this process.

    `with Crew(2, Encoder) as crew: for answer in crew.work("encode", pieces): ...`
    They are forked, so they start in no time; a process that loses its crew ends by itself.
    """

    def __init__(self, count: int, make: Callable[[], Any]) -> None:
        self._inline = make() if count == 1 else None
        self._pipes: list[Connection] = []
        self._processes = []
        context = multiprocessing.get_context("fork")
        for _ in range(count if count > 1 else 0):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, make, [*self._pipes, ours]), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if error[0] is not None:
                process.terminate()
            process.join()

    def work(self, method: str, tasks: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """`(number of the task, answer)` as they come in; no more tasks are taken than there are free hands."""
        if self._inline is not None:
            for number, task in enumerate(tasks):
                yield number, getattr(self._inline, method)(number, task)
            return
        free, busy = list(self._pipes), dict[Connection, int]()
        numbered = enumerate(tasks)
        while True:
            while free and (entry := next(numbered, None)) is not None:
                pipe = free.pop()
                _send(pipe, (method, entry))
                busy[pipe] = entry[0]
            if not busy:
                return
            ready = wait(list(busy))
            for pipe in [pipe for pipe in busy if pipe in ready]:
                answer = _receive(pipe)
                free.append(pipe)
                yield busy.pop(pipe), answer

    def each(self, method: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """The same of all workers, each with the argument that has its number; at once."""
        if self._inline is not None:
            return [getattr(self._inline, method)(*arguments[:1])]
        for number, pipe in enumerate(self._pipes):
            _send(pipe, (method, arguments[number : number + 1]))
        return [_receive(pipe) for pipe in self._pipes]


def _serve(pipe: Connection, make: Callable[[], Any], others: list[Connection]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who is asked ends all of them
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each: threads of their own would only get in the way
    for other in others:  # else no end of a pipe would ever be seen
        other.close()
    worker = make()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            method, arguments = pipe.recv()
            try:
                answer: Any = getattr(worker, method)(*arguments)
            except Exception as error:
                answer = error
            pipe.send(answer)


def _send(pipe: Connection, message: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # that it is gone is told when its answer is missed
        pipe.send(message)


def _receive(pipe: Connection) -> Any:
    try:
        answer = pipe.recv()
    except (EOFError, ConnectionResetError):
        hint = "it was killed, perhaps for want of memory: try fewer --workers"
        raise AlchemyError("a process that encodes is gone", hint=hint) from None
    if isinstance(answer, Exception):
        raise answer
    return answer
