"""Benchmark logging: `run.metrics.log`, `run.log`, which writes a row to the record, and the ledger."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
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


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    calls, loss = CALLS // 10 if quick else CALLS, torch.tensor(1.0)
    with tempfile.TemporaryDirectory() as folder, Run({"tag": "bench", "seed": 0}) as run:
        record = Record.create(folder, name="r", tag="bench")
        run.record, ledger = record, Ledger(Path(folder) / "ledger.jsonl")
        numbers = iter(range(1, 10**9))

        def log_mean() -> None:
            run.metrics.log("loss", loss, 32)

        def log_row() -> None:
            run.log(VALUES, update=1)

        def close_update() -> None:
            update = next(numbers)
            ledger.add_step(IDS)
            ledger.close_update(update, 0)
            if update % 10 == 0:  # as often as metrics are logged
                ledger.flush()

        made = []
        for name, call in {"run.metrics.log of a tensor": log_mean, "run.log of a row of 10 metrics": log_row}.items():
            times = latencies(call, calls)
            made += [over_blocks(f"{name}, p{share * 100:g}", times, 100.0, quantile(share)) for share in (0.5, 0.99)]
        times = latencies(close_update, calls, time.thread_time_ns)
        made.append(over_blocks(LEDGER, times, 10.0, statistics.fmean))
        run.metrics.turn_over()
        record.finish("finished")
        ledger.close()
    return made
