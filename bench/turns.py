"""Run implementations in separate processes that take turns: each does its work on request and reports the time."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

Work = Callable[[int], object]  # takes the size of the work


class Turn:
    """A process that waits for its turn, with its own number of threads."""

    def __init__(self, module: str, name: str, threads: int) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ask(self, size: int) -> tuple[float, float]:
        """Do one piece of work; return its seconds, and the peak memory of the process so far, in MiB."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(size, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            sys.exit(f"{self.name} exited with code {self.process.wait()}")
        return float(answer[0]), float(answer[1])


@contextlib.contextmanager
def turns(module: str, names: Sequence[str], threads: int) -> Iterator[list[Turn]]:
    made = [Turn(module, name, threads) for name in names]
    try:
        yield made
    finally:
        for turn in made:
            assert turn.process.stdin is not None
            turn.process.stdin.close()
            turn.process.wait()


def serve(work: Work) -> None:
    """Do a piece of work for each size read from standard input: the main loop of a process."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep other output away from the answers
    for line in sys.stdin:
        begin = time.perf_counter()
        work(int(line))
        seconds = time.perf_counter() - begin
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=out, flush=True)
