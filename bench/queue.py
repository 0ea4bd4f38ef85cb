"""Benchmark the queue: what it adds to the start of a process, and how long a thousand entries take to list."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from alchemy.queue import NewEntry, Queue, Slots, Worker
from bench.measure import Figure, absolute, difference
from bench.start import ALCHEMY, process_seconds

COMMAND = (sys.executable, "-c", "pass")
RUNS = 5  # entries of one measurement
MANY = 1000


def figures(quick: bool = False) -> list[Figure]:
    """Measure the wall time of a run in the queue minus that of its process, in turns, and the CPU time of a list."""
    rounds = 3 if quick else 40
    with tempfile.TemporaryDirectory() as name:
        empty, long = Queue(Path(name) / "empty"), Queue(Path(name) / ".alchemy" / "queue")
        long.add([NewEntry(argv=COMMAND, state="held")] * MANY)
        pairs, crowded, listed = [], [], []
        for _ in range(rounds):
            pairs.append((_seconds_in(empty), _seconds_bare()))
            crowded.append((_seconds_in(long), _seconds_bare()))
            listed.append(process_seconds([ALCHEMY, "queue", "ls"], name, dict(os.environ))[1])
    return [
        difference("a run in the queue, minus its process", pairs, 0.05),
        difference(f"the same with {MANY} other entries", crowded, 0.1),
        absolute(f"alchemy queue ls with {MANY} entries, CPU time with the start of Python", listed, 0.2, "s"),
    ]


def _seconds_in(queue: Queue) -> float:
    """Return the seconds of one of several runs in the queue, one after the other; they are removed at the end."""
    added = queue.add([NewEntry(argv=COMMAND)] * RUNS)
    begin = time.perf_counter()
    with Worker(queue, Slots(1)) as worker:
        while worker.list_remaining():
            worker.step()
    seconds = time.perf_counter() - begin
    for entry in added:
        queue.update(entry.id, lambda entry: replace(entry, state="removed"))
    return seconds / RUNS


def _seconds_bare() -> float:
    begin = time.perf_counter()
    for _ in range(RUNS):
        subprocess.run(COMMAND, check=True)
    return (time.perf_counter() - begin) / RUNS
