"""Measure how long the training loop waits when a run logs media, and what [capture] costs between captures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from alchemy.capture import Capture
from alchemy.media.run_methods import LogsMedia
from alchemy.pipeline import EndStepPipeline, SchedPipeline
from alchemy.records.media_entry import Moment
from alchemy.records.media_file import MediaFile
from alchemy.runner import run as run_configs
from bench.loop import config
from bench.measure import Figure, absolute

ROUNDS = 60
IMAGES_MS, HISTOGRAM_MS, CAPTURE_US = 1.0, 2.0, 5.0
CALLS = 1000  # of a step without a capture


class _Logging(LogsMedia):
    """The media methods of a run."""

    update = 0

    def media_moment(self, update: int | None) -> Moment:
        return Moment(self.update, 0, 0.0)


@SchedPipeline.register()
class TimeCapture(EndStepPipeline):
    """Measures at the end of each step how long [capture] takes if none is due, in microseconds."""

    found: list[float] = []

    def __call__(self, outputs: object = None, **kwargs: Any) -> dict[str, Any]:
        capture = Capture(modules=["*"], examples=1, every=10**9)
        begin = time.perf_counter()
        for _ in range(CALLS):
            capture.after_step()
        TimeCapture.found.append(1e6 * (time.perf_counter() - begin) / CALLS)
        return kwargs


def measure_capture(folder: str, rounds: int) -> list[float]:
    """Return the time of a step without a capture, once per step of a run."""
    TimeCapture.found = []
    cfg = config(folder, 0) | {"stop": {"any": [{"type": "alchemy.stop.Updates", "updates": rounds}]}}
    cfg["plugins"] = cfg["plugins"][1:]
    cfg["sched"]["pipes"] = [{"type": "bench.media.TimeCapture"}]
    run_configs([cfg], device=[-1], raise_errors=True)
    return TimeCapture.found


def figures(*, quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    images, values = torch.rand(64, 3, 32, 32), torch.randn(1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        run = _Logging()
        run.media.sinks.append(MediaFile(Path(folder)).write)
        rounds = 5 if quick else ROUNDS
        grid = _measure(run, rounds, lambda: run.log_images("images", images))
        histogram = _measure(run, rounds, lambda: run.log_histogram("values", values))
        run.media.close()
        capture = measure_capture(folder, rounds)
    return [
        absolute("log_images, a grid of 64 images of 3 x 32 x 32", grid, IMAGES_MS, "ms"),
        absolute("log_histogram, 1,000,000 values", histogram, HISTOGRAM_MS, "ms"),
        absolute("[capture], a step without a capture", capture, CAPTURE_US, "us"),
    ]


def _measure(run: _Logging, rounds: int, log: Callable[[], None]) -> list[float]:
    """Return the wall time of each call in milliseconds, while the thread is busy with the entry of the call before."""
    log()  # imports and warms up
    run.media.flush()
    found = []
    for number in range(rounds):
        run.update = number
        begin = time.perf_counter()
        log()
        found.append(1000 * (time.perf_counter() - begin))
        if number % 2:
            run.media.flush()
    return found
