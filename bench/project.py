"""Benchmark a project made by `alchemy new`: data loading, `Pad`, an evaluation, a save, and a busy machine.

Config and network are those of the template, with more points, so that an epoch has 500 steps. Plain PyTorch reads the
same points as tensors with torch's DataLoader and its default collate function. Both take turns in one process: a
scheduler pipe does a block of plain steps after every block of ours, and reads the CPU clock.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from alchemy import prepare_cfg
from alchemy.cli.new import LABELS, points, project
from alchemy.context import current_run
from alchemy.data.collate import Pad
from alchemy.loop import evaluate
from alchemy.pipeline import BeginStepPipeline, SchedPipeline
from alchemy.runner import run
from bench.loop import measure as measure_loop
from bench.measure import Figure, absolute, ratio, settle

POINTS, BATCH, BLOCK = 16_000, 32, 100
Pairs = list[tuple[float, float]]


class Plain:
    """The same training and evaluation as a plain script."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: max(0.0, 1 - step / 1e6))
        self.train = DataLoader(_samples("train"), batch_size=BATCH, shuffle=True)
        self.dev = DataLoader(_samples("dev"), batch_size=150)
        self.batches = self._epochs()

    def _epochs(self) -> Iterator[dict[str, Tensor]]:
        while True:
            yield from self.train

    def steps(self) -> float:
        total = 0.0
        self.model.train()
        for _ in range(BLOCK):
            batch = next(self.batches)
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(batch["point"]), batch["label"])
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.sched.step()
            total += loss.item()
        return total

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float]:
        self.model.eval()
        loss = right = count = 0.0
        for batch in self.dev:
            logits = self.model(batch["point"])
            loss += functional.cross_entropy(logits, batch["label"], reduction="sum").item()
            right += (logits.argmax(1) == batch["label"]).sum().item()
            count += len(logits)
        return loss / count, right / count


def _samples(split: str) -> list[dict[str, Any]]:
    rows = [line.split(",") for line in Path(f"data/{split}.csv").read_text().splitlines()[1:]]
    return [{"point": torch.tensor([float(x), float(y)]), "label": LABELS.index(label)} for x, y, label in rows]


@SchedPipeline.register()
class Turns(BeginStepPipeline):
    """Measure `work` after every block of steps: `steps`, `evaluation` or `save`.

    `steps` and `evaluation` are compared with plain PyTorch.
    """

    pairs: Pairs = []

    def __init__(self, *, work: str) -> None:
        super().__init__()
        self.plain, self.work = Plain(), work
        self.step, self.begin = 0, 0.0

    def __call__(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
        if self.step % BLOCK == 0:
            ours = time.process_time() - self.begin
            if self.work == "steps":
                pair = (ours, _seconds(self.plain.steps))
            elif self.work == "evaluation":
                pair = (_seconds(evaluate), _seconds(self.plain.evaluate))
            else:
                context = current_run()
                pair = (_seconds(lambda: context.checkpoints.save(context.where, "bench")), 1.0)
            if self.step > BLOCK:  # the first block only warms up both sides
                Turns.pairs.append(pair)
            self.begin = time.process_time()
        self.step += 1
        return kwargs


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


@contextlib.contextmanager
def _new_project() -> Iterator[Path]:
    """Make a project from the template in a temporary folder, and change into it."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for place, text in project("bench").items():
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            Path(place).write_text(text)
        Path("data/train.csv").write_text("x,y,label\n" + "".join(points("train", POINTS)))
        sys.path.insert(0, name)
        try:
            yield Path(name)
        finally:
            sys.path.remove(name)


def _pairs(work: str, blocks: int) -> Pairs:
    """Return pairs of (ours, plain) CPU seconds from one run of the template's config."""
    cfg = prepare_cfg("train.toml")
    pipes = [{"type": "bench.project.Turns", "work": work}]
    cfg["sched"] |= {"epochs": -(-blocks * BLOCK * BATCH // POINTS), "pipes": pipes}
    Turns.pairs = []
    os.environ["TTY_COMPATIBLE"] = "1"  # draw the progress bar as on a terminal
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run([cfg], device=[-1], raise_errors=True)
    return Turns.pairs


def _ids(draw: random.Random, length: int) -> list[int]:
    return [draw.randrange(1000) for _ in range(length)]


def _time_collate(samples: list[dict[str, Any]], plain: Callable[[Any], object]) -> Callable[[], Pairs]:
    """Return a function that times `Pad` and plain NumPy in turns, each 200 times on the same batch."""
    pad = Pad()

    def draw() -> Pairs:
        pairs = []
        for _ in range(20):
            ours = _seconds(lambda: [pad(samples) for _ in range(200)])
            pairs.append((ours, _seconds(lambda: [plain(samples) for _ in range(200)])))
        return pairs

    draw()  # warm up both sides
    return draw


def pad_ragged(batch: list[dict[str, Any]]) -> dict[str, Tensor]:
    rows = [sample["ids"] for sample in batch]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    labels = np.array([sample["label"] for sample in batch])
    return {"ids": torch.from_numpy(ids), "label": torch.from_numpy(labels)}


def stack_fixed(batch: list[dict[str, Any]]) -> dict[str, Tensor]:
    points = np.stack([sample["point"] for sample in batch])
    labels = np.array([sample["label"] for sample in batch])
    return {"point": torch.from_numpy(points), "label": torch.from_numpy(labels)}


def _pad_figures(cap: int) -> list[Figure]:
    draw = random.Random(0)
    lengths = [draw.randint(5, 30) for _ in range(BATCH)]
    lists = [{"ids": _ids(draw, length), "label": draw.randrange(3)} for length in lengths]
    arrays = [{**sample, "ids": np.array(sample["ids"])} for sample in lists]
    fixed = [{"point": np.array(_ids(draw, 32), np.float32), "label": draw.randrange(3)} for _ in range(BATCH)]
    cases = {
        "Pad / plain NumPy, ragged lists of ids": (lists, pad_ragged),
        "Pad / plain NumPy, ragged arrays of ids": (arrays, pad_ragged),
        "Pad / plain NumPy, fixed arrays": (fixed, stack_fixed),
    }
    return [ratio(name, settle(_time_collate(batch, plain), cap), 1.5) for name, (batch, plain) in cases.items()]


@contextlib.contextmanager
def _busy_neighbors(count: int = 2) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    blocks, cap = (10, 20) if quick else (45, 400)
    made = _pad_figures(cap)
    with _new_project():
        steps = settle(lambda: _pairs("steps", blocks), cap)
        made.append(ratio("the template's training / DataLoader, default_collate and a plain loop", steps, 1.10))
        made.append(
            ratio(
                "evaluating 150 points / a plain evaluation loop", settle(lambda: _pairs("evaluation", blocks), cap), 15
            )
        )
        saves = [1000 * ours for ours, _ in _pairs("save", blocks)]
        made.append(absolute("saving a checkpoint of the template, CPU of the process", saves, 15, "ms"))
    with _busy_neighbors():
        pairs = settle(lambda: measure_loop(blocks * 100, 0), cap)
        made.append(
            ratio("loop, all features, two busy processes / plain PyTorch that reads, clips, schedules", pairs, 1.10)
        )
    return made
