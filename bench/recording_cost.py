"""Measure what recording costs during training, as a share of steps of 5 ms."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch

from alchemy.training_log import FLUSH_UPDATES
from bench.measure import Figure, absolute
from bench.tracking import Recorder, recorder

STEP, STEPS, BLOCKS = 0.005, 200, 40  # seconds of a step, steps of a block, blocks with recording
SIZE = 128  # of the square matrices that a step multiplies
DEFAULT = 10  # `log_every` of a config without it
BOUND = 1.0  # percent


class Block(NamedTuple):
    """The wall time of a block of steps, the CPU time of its thread, and how much of that was spent on recording."""

    wall: float
    cpu: float
    recording: float


def recording_figures(quick: bool) -> list[Figure]:
    """Measure a run that logs a row of 10 metrics at each update, and one that logs it as often as by default."""
    torch.set_num_threads(1)
    steps, blocks = (STEPS // 10, 3) if quick else (STEPS, BLOCKS)
    made = []
    for when, log_every in {"each step": 1, f"every {DEFAULT} steps": DEFAULT}.items():
        thread, wall = _measure_shares(steps, blocks, log_every)
        name = f"recording during steps of 5 ms, a row of 10 metrics {when}"
        made.append(absolute(f"{name}, CPU of the training thread", thread, BOUND, "%"))
        made.append(absolute(f"{name}, wall", wall, BOUND, "%"))
    return made


def _measure_shares(steps: int, blocks: int, log_every: int) -> tuple[list[float], list[float]]:
    """Compare blocks of steps that record with the blocks before and after them, which do not.

    Return the shares of recording in the CPU time of the training thread and in the wall time, in percent.
    """
    work = _calibrated_step()
    with recorder(FLUSH_UPDATES) as ours:
        _run_block(work, steps, ours, log_every)  # warm up
        plain, recorded = [_run_block(work, steps)], []
        for _ in range(blocks):
            recorded.append(_run_block(work, steps, ours, log_every))
            plain.append(_run_block(work, steps))
    around = [Block(*(sum(pair) / 2 for pair in zip(*two))) for two in pairwise(plain)]
    thread = [100 * block.recording / other.cpu for block, other in zip(recorded, around)]
    wall = [100 * (block.wall / other.wall - 1) for block, other in zip(recorded, around)]
    return thread, wall


def _calibrated_step() -> Callable[[], object]:
    """Return a function that multiplies matrices for about 5 ms of CPU time."""
    matrix = torch.randn(SIZE, SIZE)

    def multiply(times: int) -> float:
        begin = time.thread_time()
        for _ in range(times):
            torch.mm(matrix, matrix)
        return time.thread_time() - begin

    multiply(1000)
    times = round(STEP * 2000 / multiply(2000))
    return lambda: multiply(times)


def _run_block(work: Callable[[], object], steps: int, ours: Recorder | None = None, log_every: int = 1) -> Block:
    """Run a block; one with recording ends once its rows are written, so that the next block does not pay for them."""
    begin, cpu, recording = time.perf_counter(), time.thread_time(), 0.0
    for step in range(steps):
        work()
        if ours is not None:
            called = time.thread_time()
            ours.log_mean()
            ours.close_update()
            if step % log_every == 0:
                ours.run.metrics.turn_over()
                ours.log_row()
            recording += time.thread_time() - called
    if ours is not None:
        ours.record.series.flush()
    return Block(time.perf_counter() - begin, time.thread_time() - cpu, recording)
