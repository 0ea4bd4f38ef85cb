"""Parts that draw random numbers wherever possible, and pass the places where a process may be killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from alchemy.loop import evaluate
from alchemy.model import AlchemyModel
from alchemy.pipeline import (
    BeginEpochPipeline,
    BeginStepPipeline,
    EndEpochPipeline,
    EndStepPipeline,
    EvalPipeline,
    ItrDataPipeline,
    LstDataPipeline,
    SchedPipeline,
)
from alchemy.seeds import sample_rng
from tests.resume.bomb import passing


def noise() -> float:
    """Draw a number from each global generator."""
    return random.random() + float(np.random.rand()) + float(torch.rand(()))


class Noisy(LstDataPipeline):
    """Points whose values are drawn again at each read."""

    def __init__(self, *, count: int = 10) -> None:
        super().__init__()
        passing("data")
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = torch.tensor([index / self.count + 0.01 * noise(), float(sample_rng().random())])
        return {"x": x, "y": x.sum()[None] + 1}


class NoisyStream(ItrDataPipeline):
    """The same points as a stream."""

    def __init__(self, *, count: int = 10) -> None:
        super().__init__()
        self.count = count

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for index in range(self.count):
            x = torch.tensor([index / self.count + 0.01 * noise(), 1.0])
            yield {"x": x, "y": x.sum()[None] + 1}


class LazySampler:
    """Draw each index from the global generator on request."""

    def __init__(self, data_source: Any) -> None:
        self.count = len(data_source)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield random.randrange(self.count)


class Net(AlchemyModel):
    """A small net with dropout and a buffer; in training it draws, and logs metrics of every kind."""

    def __init__(self, *, dropout: float = 0.3) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=True), nn.Dropout(dropout), nn.Linear(3, 1)
        )

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        passing("forward" if requires_grad else "eval")
        y = self.model(batch["x"] + (0.01 * noise() if requires_grad else 0.0))
        loss_sum, count = (y - batch["y"]).square().sum(), len(batch["y"])
        if requires_grad:
            self.run.metrics.log("first", batch["x"][:, 0].sum(), count)
            self.run.metrics.sum("samples", count)
            self.run.metrics.max("largest", loss_sum.detach())
            self.run.metrics.last("newest", noise())
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"y": y, "loss": loss, "loss_sum": loss_sum.detach(), "count": count}


def shake(run: Any) -> None:
    """Shift the weights by numbers from the generators, so that their state matters."""
    with torch.no_grad():
        for param in run.model.parameters():
            param += 1e-3 * noise()


@SchedPipeline.register()
class ShakeBE(BeginEpochPipeline):
    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        passing("begin_epoch")
        shake(self.run)
        return {**kwargs, "shaken": noise()}


@SchedPipeline.register()
class EvalBE(BeginEpochPipeline):
    """Evaluate at the beginning of every epoch."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        evaluate("dev")
        return kwargs


@SchedPipeline.register()
class TakeBE(BeginEpochPipeline):
    """Use a value stored by an earlier pipe."""

    def __call__(self, shaken: float, **kwargs: Any) -> dict[str, Any]:
        with torch.no_grad():
            for param in self.run.model.parameters():
                param += 1e-3 * shaken
        return kwargs


@SchedPipeline.register()
class ShakeEE(EndEpochPipeline):
    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        passing("end_epoch")
        shake(self.run)
        return kwargs


@SchedPipeline.register()
class PassBS(BeginStepPipeline):
    def __call__(self, batch: Any, **kwargs: Any) -> dict[str, Any]:
        passing("begin_step")
        return kwargs


@SchedPipeline.register()
class PassES(EndStepPipeline):
    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        passing("end_step")
        return kwargs


@SchedPipeline.register()
class ResetES(EndStepPipeline):
    """Restart the learning rate curve at a step, with a longer warm-up."""

    def __init__(self, *, step: int) -> None:
        super().__init__()
        self.step = step

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        if self.run.train_sched.cur_step == self.step:
            self.run.train_sched.reset_lr_sched(num_warmup_steps=2)
        return kwargs


@EvalPipeline.register()
class Draw(EvalPipeline):
    """A score with a random component: it depends on the number of evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        passing("scored")
        self.calls += 1
        return {**kwargs, "drawn": noise(), "calls": self.calls}

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def config(log_dir: str, *, period: int = 1, workers: int = 0, every: Any = 2, **changes: Any) -> dict[str, Any]:
    """Return the config of three epochs of five steps with every kind of state; `changes` as in tests.toy.config."""
    from tests import toy

    data = {"pipes": [{"type": "tests.resume.parts.Noisy"}], "batch_size": 2}
    dev = {"pipes": [{"type": "tests.resume.parts.Noisy", "count": 4}], "batch_size": 2}
    pipes = [
        {"type": "tests.resume.parts.ShakeBE"},
        {"type": "tests.resume.parts.PassBS"},
        {"type": "alchemy.pipeline.sched.EvalESPipeline", "period": 4},
        {"type": "tests.resume.parts.PassES"},
        {"type": "alchemy.pipeline.sched.EvalEEPipeline"},
        {"type": "tests.resume.parts.ShakeEE"},
    ]
    cfg = toy.config(log_dir)
    cfg["task"] |= {
        "evalpipes": [{"type": "tests.resume.parts.Draw"}],
        "datasets": {"train": {**data, "shuffle": True, "num_workers": workers}, "dev": dev},
    }
    cfg |= {
        "model": {"type": "tests.resume.parts.Net"},
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.05, "max_grad_norm": 1.0},
        "sched": {"type": "alchemy.sched.LineWarmup", "epochs": 3, "num_warmup_steps": 3, "pipes": pipes},
        "ema": {"decay": 0.9},
        "backward": {"period": period},
        "checkpoint": {"every": every, "monitor": "dev/loss", "mode": "min", "best": 2, "last": 2},
        "stop": {"any": [{"type": "alchemy.stop.Patience", "monitor": "dev/drawn", "patience": 50}]},
    }
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        cfg[table] = {**cfg[table], inner: value} if inner else value
    return cfg
