"""The processes of distributed training: which of them this one is, and how they are started on one machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from alchemy.errors import AlchemyError
from alchemy.launch.signals import SIGNALS

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
# keys in the rendezvous store
WATCHED, LOST = "alchemy/watched", "alchemy/lost"
GRACE = 30.0  # seconds for the other processes to exit after a failure, and again after SIGTERM
POLL = 0.02


class RankInfo(NamedTuple):
    """The rank of this process, set by torchrun or `start_ranks`."""

    rank: int
    size: int
    local_rank: int


def get_rank_info() -> RankInfo:
    """Read the rank from the environment (default: 0 of 1). Raise an error if variables are missing or invalid."""
    given = {name: os.environ[name] for name in NEEDED if os.environ.get(name)}
    if given.get("WORLD_SIZE") == "1" or not {"WORLD_SIZE", "RANK"} & given.keys():
        return RankInfo(0, 1, 0)
    hint = "start it with torchrun --nproc-per-node N, or unset them to use a single process"
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise AlchemyError(f"{', '.join(given)} set without {', '.join(missing)}", hint=hint)
    try:
        found = RankInfo(*(int(given[name]) for name in NEEDED[:3]))
    except ValueError:
        found = RankInfo(-1, 0, 0)
    if not 0 <= found.rank < found.size:
        shown = ", ".join(f"{name}={given[name]}" for name in NEEDED[:3])
        raise AlchemyError(f"{shown}: RANK must be a number from 0 to WORLD_SIZE - 1", hint=hint)
    return found


class RankExit(NamedTuple):
    """The rank and exit code of a process that failed."""

    rank: int
    code: int  # negative signal number if killed, as in `subprocess`

    def __str__(self) -> str:
        if self.code < 0:
            named = {number.value: f" ({number.name})" for number in signal.Signals}  # some signals have no name
            return f"rank {self.rank} was killed by signal {-self.code}{named.get(-self.code, '')}"
        return f"rank {self.rank} ended with exit code {self.code}"


def is_launched() -> bool:
    """Return whether this process was started by torchrun, `start_ranks` or another launcher."""
    return "WORLD_SIZE" in os.environ


def start_ranks(count: int, *program: str) -> None:
    """Start `count` processes of a program and exit when they do. Does nothing inside them, or if `count` is 1.

    `program` contains the arguments for Python. Call this function at the start of a script:

        start_ranks(cuda_count(), __file__, *sys.argv[1:])

    Exits with the code of the first process that failed, or 1 if it was killed. Signals are forwarded to all processes.
    """
    if count > 1 and not is_launched():
        sys.stdout.flush()
        sys.stderr.flush()
        first = _run_together(count, [sys.executable, *program])
        if first is not None and first.rank == 0 and first.code < 0:  # otherwise rank 0 reports the failure
            sys.exit(f"error: {first}")
        sys.exit(0 if first is None else max(first.code, 1))


def _run_together(count: int, command: list[str]) -> RankExit | None:
    """Run the processes until all have exited; return the first failure."""
    from torch.distributed import TCPStore  # served by this process, so that the store outlives all ranks

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
            # separate process group: this process forwards signals from the terminal, once
            running[rank] = subprocess.Popen(command, env=shared | place, process_group=0)
        deadline, harder = 0.0, iter((signal.SIGTERM, signal.SIGKILL))
        while running:
            time.sleep(POLL)
            ended = [RankExit(rank, code) for rank, process in running.items() if (code := process.poll()) is not None]
            for one in sorted(ended, key=lambda one: one.code):  # a killed process makes the others fail
                del running[one.rank]
                if first is None and one.code:
                    first, deadline = one, time.monotonic() + GRACE
                    store.set(LOST, str(first))
            if first is not None and time.monotonic() > deadline:
                _send(running, next(harder, signal.SIGKILL))
                deadline += GRACE
    finally:
        _send(running, signal.SIGKILL)  # some are still running only if this process fails
    return first


def _send(running: dict[int, subprocess.Popen[bytes]], number: int) -> None:
    for process in list(running.values()):
        process.send_signal(number)
