"""The processes of one model on one machine, started by the program that they run."""

from __future__ import annotations

import os
import sys


def launched() -> bool:
    """Whether a launcher has started this process: torchrun, another one, or `start_ranks`."""
    return "WORLD_SIZE" in os.environ


def start_ranks(count: int, *program: str) -> None:
    """Becomes torchrun, which starts `count` processes of a program; does nothing in them, or where one is enough.

    `program` is what Python is to run, with its arguments. A script begins with

        start_ranks(cuda_count(), __file__, *sys.argv[1:])
    """
    if count > 1 and not launched():
        sys.stdout.flush()
        sys.stderr.flush()
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        os.execv(sys.executable, [sys.executable, *launcher, *program])
