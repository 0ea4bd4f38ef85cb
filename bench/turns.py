"""Run implementations in separate processes that take turns: each does its work on request and reports the time."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Work = Callable[[int], object]  # takes the size of the work


class Answer(NamedTuple):
    """What a piece of work took: wall time, the peak memory of its process so far in MiB, and CPU time."""

    seconds: float
    mebibytes: float
    cpu: float


class Turn:
    """A process that waits for its turn, with its own number of threads, and its own Python if need be."""

    def __init__(self, module: str, name: str, threads: int, *more: str, python: str = sys.executable) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, "-m", module, name, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ask(self, size: int) -> Answer:
        """Do one piece of work."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(size, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if len(answer) != len(Answer._fields):
            sys.exit(f"{self.name} exited with code {self.process.wait()}")
        return Answer(*map(float, answer))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def turns(module: str, names: Sequence[str], threads: int) -> Iterator[list[Turn]]:
    made = [Turn(module, name, threads) for name in names]
    try:
        yield made
    finally:
        for turn in made:
            turn.close()


def serve(work: Work) -> None:
    """Do a piece of work for each size read from standard input: the main loop of a process."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep other output away from the answers
    for line in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        work(int(line))
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, cpu, file=out, flush=True)
