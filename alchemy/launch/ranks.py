"""The processes of one model on one machine, started and watched by the program that they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from alchemy.launch.signals import SIGNALS

# keys of the store through which the processes meet
WATCHED, LOST = "alchemy/watched", "alchemy/lost"
GRACE = 30.0  # seconds for the others to end by themselves once one has failed, and again after SIGTERM
POLL = 0.02


class RankExit(NamedTuple):
    """How a process ended that did not end well."""

    rank: int
    code: int  # minus the signal that killed it, as `subprocess` has it

    def __str__(self) -> str:
        if self.code < 0:
            named = {number.value: f" ({number.name})" for number in signal.Signals}  # not all have a name
            return f"rank {self.rank} was killed by signal {-self.code}{named.get(-self.code, '')}"
        return f"rank {self.rank} ended with exit code {self.code}"


def is_launched() -> bool:
    """Whether a launcher has started this process: torchrun, another one, or `start_ranks`."""
    return "WORLD_SIZE" in os.environ


def start_ranks(count: int, *program: str) -> None:
    """Starts `count` processes of a program and ends with them; does nothing in them, or where one is enough.

    `program` is what Python is to run, with its arguments. A script begins with

        start_ranks(cuda_count(), __file__, *sys.argv[1:])

    The exit code is that of the first process that failed, or 1 where it was killed. Signals go to all of them.
    """
    if count > 1 and not is_launched():
        sys.stdout.flush()
        sys.stderr.flush()
        first = _run_together(count, [sys.executable, *program])
        if first is not None and first.rank == 0 and first.code < 0:  # else the first process itself says why
            sys.exit(f"error: {first}")
        sys.exit(0 if first is None else max(first.code, 1))


def _run_together(count: int, command: list[str]) -> RankExit | None:
    """Runs the processes to their end; returns the first that failed."""
    from torch.distributed import TCPStore  # served from here, so that it outlives every one of them

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set(WATCHED, "")
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1", **os.environ}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    running: dict[int, subprocess.Popen[bytes]] = {}
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _send(running, number))
    first: RankExit | None = None
    try:
        for rank in range(count):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            # a group of its own: what the terminal sends comes through this process, once
            running[rank] = subprocess.Popen(command, env=shared | place, process_group=0)
        deadline, harder = 0.0, iter((signal.SIGTERM, signal.SIGKILL))
        while running:
            time.sleep(POLL)
            ended = [RankExit(rank, code) for rank, process in running.items() if (code := process.poll()) is not None]
            for one in sorted(ended, key=lambda one: one.code):  # a killed one is the cause of what the others meet
                del running[one.rank]
                if first is None and one.code:
                    first, deadline = one, time.monotonic() + GRACE
                    store.set(LOST, str(first))
            if first is not None and time.monotonic() > deadline:
                _send(running, next(harder, signal.SIGKILL))
                deadline += GRACE
    finally:
        _send(running, signal.SIGKILL)  # none is left unless this process fails
    return first


def _send(running: dict[int, subprocess.Popen[bytes]], number: int) -> None:
    for process in list(running.values()):
        process.send_signal(number)
