"""Save in children that are killed at random moments, and check the result. torch is imported once for all of them.

usage: python killed.py STATE KILLS
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from alchemy.checkpoint.files import read
from alchemy.checkpoint.keeper import Checkpoints
from alchemy.checkpoint.manifest import Where, newest_valid

SIZES = (1, 1000, 70_000)


class Counter:
    """A part whose tensors contain the update at which they were saved."""

    def __init__(self) -> None:
        self.update = 0
        self.tensors = [torch.zeros(size) for size in SIZES]

    def state_dict(self) -> dict[str, Any]:
        return {"update": self.update, "tensors": self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.update, self.tensors = state["update"], list(state["tensors"])

    def step(self) -> None:
        self.update += 1
        for tensor in self.tensors:
            tensor.fill_(self.update)


def child(state: Path, acknowledged: int) -> None:
    counter = Counter()
    keeper = Checkpoints(state, every=1, last=2, monitor="dev/f1")
    keeper.parts = {"parts": counter}
    keeper.restore()
    os.write(acknowledged, b"0\n")
    while True:
        counter.step()
        where = Where(counter.update, 0, counter.update)
        keeper.after_evaluation("dev", {"f1": float(counter.update % 7)}, where)
        keeper.after_update(where)
        if counter.update % 3 == 0:
            keeper.saver.wait()
            os.write(acknowledged, f"{counter.update}\n".encode())


def kill_one(state: Path, draw: random.Random) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(state, writing)
    os.close(writing)
    first = os.read(reading, 2)  # it has started
    time.sleep(draw.uniform(0.001, 0.12))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as rest:
        said = [int(line) for line in rest.read().splitlines()]
    left = len(list(state.glob(".tmp-*")))
    folder, passed = newest_valid(state)
    if folder is None:
        return {"acknowledged": max(said, default=0), "update": 0, "exact": not said, "passed": passed, "left": left}
    files = read(folder)
    update = files["state.json"]["parts"]["parts"]["update"]
    tensors = files["parts.safetensors"]
    exact = len(tensors) == len(SIZES) and all(bool((tensor == update).all()) for tensor in tensors.values())
    row = {"acknowledged": max(said, default=0), "update": update, "exact": exact, "passed": passed, "left": left}
    return row if first == b"0\n" else row | {"exact": False}


def main() -> None:
    logger.remove()
    torch.set_num_threads(1)
    draw = random.Random(1)
    rows = [kill_one(Path(sys.argv[1]), draw) for _ in range(int(sys.argv[2]))]
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
