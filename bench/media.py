"""Measure how long the training loop waits when a run logs media, which a thread encodes and writes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from alchemy.media.run_methods import LogsMedia
from alchemy.records.media_entry import Moment
from alchemy.records.media_file import MediaFile
from bench.measure import Figure, absolute

ROUNDS = 60
IMAGES_MS, HISTOGRAM_MS = 1.0, 2.0


class _Logging(LogsMedia):
    """The media methods of a run."""

    update = 0

    def media_moment(self, update: int | None) -> Moment:
        return Moment(self.update, 0, 0.0)


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
    return [
        absolute("log_images, a grid of 64 images of 3 x 32 x 32", grid, IMAGES_MS, "ms"),
        absolute("log_histogram, 1,000,000 values", histogram, HISTOGRAM_MS, "ms"),
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
