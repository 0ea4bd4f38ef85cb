"""A toy GAN: the data are drawn from two clusters of numbers."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import alchemy
from alchemy.legacy.backward import BackwardHandler
from alchemy.loss_observer import Loss
from alchemy.model import AlchemyModel
from alchemy.null_objects import Updater
from alchemy.pipeline import EndEpochPipeline, EvalPipeline, LstDataPipeline, SchedPipeline
from alchemy.task import AlchemyTask

MEAN, SPREAD = 1.0, 1.25  # clusters around 0 and 2, each 0.75 wide


class Heaps(LstDataPipeline):
    """Samples with a number `x` from one of the clusters, and the noise `z` for a fake."""

    def __init__(self, *, count: int = 512, seed: int = 0) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(seed)
        heap = torch.arange(count) % 2 * 2.0
        self.xs = heap[:, None] + 0.75 * torch.randn(count, 1, generator=numbers)
        self.zs = torch.randn(count, 2, generator=numbers)

    def __len__(self) -> int:
        return len(self.xs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.xs[index], "z": self.zs[index]}


class Pair(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
        self.discriminator = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, z: Tensor) -> Tensor:
        fake: Tensor = self.generator(z)
        return fake


class Gan(AlchemyModel):
    """Generate fakes; in an evaluation, the loss is that of the generator."""

    def __init__(self, *, width: int = 16, double: bool = False) -> None:
        super().__init__()
        self.model = Pair(width).double() if double else Pair(width)

    def cast(self, numbers: Tensor) -> Tensor:
        return numbers.to(next(self.module.parameters()).dtype)

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"fake": self.model(self.cast(batch["z"]))}

    def loss(self, outputs: Mapping[str, Any], batch: Any, player: str = "generator") -> tuple[Tensor, int]:
        judge, fake = self.module.discriminator, outputs["fake"]
        if player == "generator":
            return softplus(-judge(fake)).sum(), len(fake)
        return softplus(-judge(self.cast(batch["x"]))).sum() + softplus(judge(fake)).sum(), len(fake)


class Adversarial(AlchemyTask):
    """Update the discriminator in every step, and the generator in every `n_critic`-th, with the updated discriminator.

    With `turns`, they alternate by update instead, which allows gradient accumulation.
    """

    def __init__(self, *, n_critic: int = 1, turns: bool = False) -> None:
        super().__init__()
        self.n_critic, self.turns = n_critic, turns
        self.order: list[str] = []  # losses in training

    def train_step(self, batch: Any, updater: Updater) -> Mapping[str, Any]:
        model: Any = self.run.model
        outputs = model.forward(batch)
        for player in self._players(updater.updates):
            self.order.append(player)
            total, count = model.loss(outputs, batch, player)
            loss = Loss(total, count, outputs)
            updater.accumulate(loss, optim=player)
        return loss.merged()

    def _players(self, updates: int) -> tuple[str, ...]:
        both = ("discriminator", "generator")
        if self.turns:
            return (both[updates % 2],)
        return both if (self.run.train_sched.cur_step + 1) % self.n_critic == 0 else both[:1]


class Blend(Gan):
    """Both parts with a single loss that names no optimizer."""

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"guess": self.module.discriminator(self.module.generator(self.cast(batch["z"])))}

    def loss(self, outputs: Mapping[str, Any], batch: Any, player: str = "") -> tuple[Tensor, int]:
        return (outputs["guess"] - batch["x"]).square().sum(), len(outputs["guess"])


class Spoilt(Gan):
    """The losses of some players are not finite."""

    def __init__(self, *, players: list[str]) -> None:
        super().__init__()
        self.players = players

    def loss(self, outputs: Mapping[str, Any], batch: Any, player: str = "generator") -> tuple[Tensor, int]:
        loss_sum, count = super().loss(outputs, batch, player)
        return loss_sum * (math.nan if player in self.players else 1), count


class NotesNames(BackwardHandler):
    """A custom handler that would make its own updates, but makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def backward(self, losses: Any, *args: Any, optim: str = "", **kwargs: Any) -> float:
        self.seen.append(optim)
        return float(losses.item())


class ByHook(Gan):
    """Choose the parameters of an optimizer, in custom groups."""

    def optim_params(self, name: str, bias_lr: float = 0.0, **table: Any) -> Any:
        part = getattr(self.module, name)
        biases = {id(layer.bias) for layer in part if hasattr(layer, "bias")}
        return [
            {"params": [p for p in part.parameters() if id(p) not in biases]},
            {"params": [p for p in part.parameters() if id(p) in biases], "lr": bias_lr},
        ]


@EvalPipeline.register()
class Moments(EvalPipeline):
    """Compute the mean and the standard deviation of generated numbers."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        weight = next(self.run.model.parameters())
        fakes = self.run.model.module(Heaps(count=4000, seed=7).zs.to(weight.dtype))
        return {**kwargs, "mean": float(fakes.mean()), "spread": float(fakes.std())}


@SchedPipeline.register()
class Keep(EndEpochPipeline):
    """Write the weights of this process to a file."""

    def __init__(self, *, into: str) -> None:
        super().__init__()
        self.into = into

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        torch.save(self.run.model.state_dict(), f"{self.into}.{os.environ.get('RANK', '0')}")
        return kwargs


def optims(**changes: Any) -> dict[str, Any]:
    adam = {"type": "alchemy.optim.Adam", "lr": 0.01, "betas": [0.5, 0.99], **changes}
    return {name: {**adam, "params": f"{name}.*"} for name in ("generator", "discriminator")}


def config(log_dir: Path | None = None, **changes: Any) -> dict[str, Any]:
    """Return the config of ten updates of the toy GAN, with `changes`."""
    data: dict[str, Any] = {"pipes": [{"type": "tests.gan.Heaps"}], "batch_size": 64}
    logs = [] if log_dir is None else [{"type": "alchemy.plugins.FileLogger", "log_dir": str(log_dir)}]
    cfg: dict[str, Any] = {
        "tag": "gan",
        "seed": 1,
        "log_every": 5,
        "runner": "alchemy.runner.Trainer",
        "plugins": logs,
        "task": {
            "type": "tests.gan.Adversarial",
            "evalpipes": [{"type": "tests.gan.Moments"}],
            "datasets": {
                "train": {**data, "shuffle": True},
                "dev": {**data, "pipes": [{**data["pipes"][0], "count": 64}]},
            },
        },
        "model": {"type": "tests.gan.Gan"},
        "optim": optims(),
        "sched": {"type": "alchemy.sched.Constant", "num_training_steps": 10},
    }
    return changed(cfg, **changes)


def changed(cfg: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the config with other top-level tables, or keys in them, such as `sched__epochs=2`."""
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        cfg[table] = {**cfg[table], inner: value} if inner else value
    return cfg


# the same updates for any number of processes; 512 samples are 10 full batches and a partial one
TRAININGS: dict[str, dict[str, Any]] = {
    "alternating": {"task__n_critic": 2},
    "taking turns": {"task__turns": True, "backward": {"period": 2}},
    "all at once": {"task__type": "alchemy.task.DefaultTask", "model__type": "tests.gan.Blend"},
}


def train(out: Path) -> None:
    """One epoch of each, in float64."""
    for name, changes in TRAININGS.items():
        sched = {
            "type": "alchemy.sched.Constant",
            "epochs": 1,
            "pipes": [{"type": "tests.gan.Keep", "into": str(out / name)}],
        }
        cfg = config(out / "records" / name, model__double=True, sched=sched, **changes)
        cfg["task"]["datasets"]["train"]["batch_size"] = 50
        alchemy.run([cfg], device=[-1], raise_errors=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
