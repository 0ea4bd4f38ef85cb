"""Benchmark the training loop: 5,000 steps of a small MLP against plain PyTorch that reads the loss, clips, schedules.

Both take turns in one process: before the first batch of a block, the dataset of our run does a block of plain steps
and reads the clock on both sides. The time of our side includes everything the loop does: record, metrics, ledger, a
checkpoint every 1,000 updates, random numbers by step, the NaN check, the progress bar.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from alchemy.model import AlchemyModel
from alchemy.pipeline import BeginStepPipeline, EndEpochPipeline, LstDataPipeline, SchedPipeline
from alchemy.registry import resolve
from alchemy.runner import run
from bench.measure import Figure, absolute, ratio, settle

EXTRA = tuple(f"metric_{number}" for number in range(50))
STEPS, BLOCK, BATCH, LR, CLIP = 5000, 100, 32, 0.05, 1.0


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def batches(count: int = 50) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    return [
        {"x": torch.randn(BATCH, 32, generator=draw), "y": torch.randint(10, (BATCH,), generator=draw)}
        for _ in range(count)
    ]


class Plain:
    """The usual training loop: zero_grad, forward, backward, clip, step, schedule, and reading the loss."""

    def __init__(self) -> None:
        self.model = mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: max(0.0, 1 - step / (2 * STEPS)))
        self.data = batches()

    def barest_steps(self, count: int) -> float:
        """Do only the updates: the baseline of published measurements of other frameworks."""
        self.model.train()
        for i in range(count):
            batch = self.data[i % len(self.data)]
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(batch["x"]), batch["y"]).backward()
            self.optimizer.step()
        return 0.0

    def steps(self, count: int) -> float:
        total = 0.0
        self.model.train()
        for i in range(count):
            batch = self.data[i % len(self.data)]
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(batch["x"]), batch["y"])
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.sched.step()
            total += loss.item()
        return total


class Turns(LstDataPipeline):
    """The batches of our run. Plain PyTorch takes its turn after each block."""

    pairs: list[tuple[float, float]] = []
    steps = STEPS
    against = "steps"  # the method of Plain to compare with
    with_metrics = False  # log 50 more metrics per step in every other block

    def __init__(self) -> None:
        super().__init__()
        self.data = batches()
        self.plain = getattr(Plain(), Turns.against)
        self.begin = 0.0

    def __len__(self) -> int:
        return Turns.steps + 1

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index % BLOCK == 0:
            ours = time.process_time() - self.begin
            begin = time.process_time()
            self.plain(BLOCK)
            if index:  # the first block only warms up both sides
                Turns.pairs.append((ours, time.process_time() - begin))
            Small.metrics = EXTRA if Turns.with_metrics and index // BLOCK % 2 else ()
            self.begin = time.process_time()
        return self.data[index % len(self.data)]


@SchedPipeline.register()
class Blocks(BeginStepPipeline):
    """Run the loop of the class `plain` before each block of our steps, and time both."""

    pairs: list[tuple[float, float]] = []

    def __init__(self, *, plain: str, block: int, wall: bool = False) -> None:
        super().__init__()
        self.plain, self.block = resolve(plain)(), block
        self.clock = time.perf_counter if wall else time.process_time
        self.begin = 0.0

    def __call__(self, batch: Any = None, **kwargs: Any) -> dict[str, Any]:
        if self.run.train_sched.cur_step % self.block == 0:
            ours, begin = self.clock() - self.begin, self.clock()
            self.plain.steps(self.block)
            Blocks.pairs.append((ours, self.clock() - begin))
            self.begin = self.clock()
        return kwargs


class Small(AlchemyModel):
    """The same MLP as an alchemy model."""

    metrics: tuple[str, ...] = ()  # additional metrics to log at every step

    def __init__(self) -> None:
        super().__init__()
        self.model = mlp()

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"logits": self.model(batch["x"])}

    def loss(self, outputs: Any, batch: Any) -> tuple[torch.Tensor, int]:
        for name in self.metrics:
            self.run.metrics.log(name, 0.5)
        return functional.cross_entropy(outputs["logits"], batch["y"], reduction="sum"), len(batch["y"])


@SchedPipeline.register()
class Idle(EndEpochPipeline):
    """A pipe that does nothing at a step."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs


def config(log_dir: str, idle_pipes: int) -> dict[str, Any]:
    return {
        "tag": "bench",
        "runner": "alchemy.runner.Trainer",
        "seed": 0,
        "log_every": 10,
        "plugins": [{"type": "alchemy.plugins.BasicSetup"}, {"type": "alchemy.plugins.FileLogger", "log_dir": log_dir}],
        "task": {"type": "alchemy.task.DefaultTask", "datasets": {"train": {"pipes": [{"type": "bench.loop.Turns"}]}}},
        "model": {"type": "bench.loop.Small"},
        "optim": {"type": "torch.optim.SGD", "lr": LR, "max_grad_norm": CLIP},
        "checkpoint": {"every": 1000},
        "sched": {
            "type": "alchemy.sched.LineWarmup",
            "epochs": 1,
            "num_training_steps": 2 * STEPS,
            "pipes": [{"type": "bench.loop.Idle"}] * idle_pipes,
        },
    }


def measure(steps: int, idle_pipes: int, against: str = "steps") -> list[tuple[float, float]]:
    """Return pairs of (ours, plain) CPU seconds per block, with all features of the loop enabled."""
    Turns.pairs, Turns.steps, Turns.against = [], steps, against
    os.environ["TTY_COMPATIBLE"] = "1"  # draw the progress bar as on a terminal
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run([config(folder, idle_pipes)], device=[-1], raise_errors=True)
    return Turns.pairs[1:]


def cost_of_metrics(steps: int) -> list[float]:
    """Return the extra CPU microseconds per step of each block with 50 metrics, compared with the block before it."""
    Turns.with_metrics = True
    try:
        blocks = [ours for ours, _ in measure(steps, 0)]
    finally:
        Turns.with_metrics = False
    return [1e6 * (more - less) / BLOCK for less, more in zip(blocks[1::2], blocks[2::2])]


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    steps = 1000 if quick else STEPS
    return [
        ratio(
            "loop, all features / plain PyTorch that reads, clips, schedules", settle(lambda: measure(steps, 0)), 1.05
        ),
        ratio("the same with 20 idle pipes", settle(lambda: measure(steps, 20)), 1.05),
        absolute("50 more metrics at every step", cost_of_metrics(steps), 60, "us"),
        # 1.05 times the first loop, which takes about 1.5 times as long as the minimal one
        ratio("the same / the minimal loop", settle(lambda: measure(steps, 0, "barest_steps")), 1.6),
    ]
