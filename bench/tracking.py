"""Benchmark logging: `run.metrics.log`, `run.log`, which writes a row to the record, and the ledger."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from alchemy.context import Run
from alchemy.records import Ledger, Record
from bench.measure import Figure, interval

CALLS, BLOCK = 100_000, 1000
VALUES = {f"train/value_{number}": number / 7 for number in range(10)}
IDS = list(range(32))
LEDGER = "the ledger, an update of 32 samples, mean CPU time"


def latencies(call: Callable[[], None], calls: int, clock: Callable[[], int] = time.perf_counter_ns) -> list[float]:
    """Return the microseconds of each call, by default in wall time: the delay of a training step."""
    made = []
    for _ in range(calls):
        begin = clock()
        call()
        made.append((clock() - begin) / 1000)
    return made


def quantile(share: float) -> Callable[[list[float]], float]:
    return lambda times: sorted(times)[int(share * len(times)) - 1]


def over_blocks(name: str, times: list[float], bound: float, statistic: Callable[[list[float]], float]) -> Figure:
    """Return the median of a statistic over blocks of calls."""
    blocks = [statistic(times[at : at + BLOCK]) for at in range(0, len(times), BLOCK)]
    low, high = interval(blocks, statistics.median)
    return Figure(name, statistics.median(blocks), low, high, bound, "us", len(blocks), os.getloadavg()[0])


class Recorder:
    """What a run records: metrics, rows of them, and the samples of each update."""

    def __init__(self, run: Run, folder: str, flush_every: int) -> None:
        self.run, self.flush_every = run, flush_every
        self.record = run.record = Record.create(folder, name="r", tag="bench")
        self.ledger = Ledger(Path(folder) / "ledger.jsonl")
        self.update, self.loss = 0, torch.tensor(1.0)

    def log_mean(self) -> None:
        self.run.metrics.log("loss", self.loss, 32)

    def log_row(self) -> None:
        self.run.log(VALUES, update=1)

    def close_update(self) -> None:
        self.update += 1
        self.ledger.add_step(IDS)
        self.ledger.close_update(self.update, 0)
        if self.update % self.flush_every == 0:
            self.ledger.flush()


@contextlib.contextmanager
def recorder(flush_every: int) -> Iterator[Recorder]:
    """Open a record in a temporary folder; its ledger is flushed every `flush_every` updates."""
    with tempfile.TemporaryDirectory() as folder, Run({"tag": "bench", "seed": 0}) as run:
        opened = Recorder(run, folder, flush_every)
        yield opened
        run.metrics.turn_over()
        opened.record.finish("finished")
        opened.ledger.close()


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    calls, made = CALLS // 10 if quick else CALLS, []
    with recorder(flush_every=10) as ours:  # ten times as often as the training loop
        works = {"run.metrics.log of a tensor": ours.log_mean, "run.log of a row of 10 metrics": ours.log_row}
        for name, call in works.items():
            times = latencies(call, calls)
            made += [over_blocks(f"{name}, p{share * 100:g}", times, 100.0, quantile(share)) for share in (0.5, 0.99)]
        times = latencies(ours.close_update, calls, time.thread_time_ns)
        made.append(over_blocks(LEDGER, times, 10.0, statistics.fmean))
    return made
