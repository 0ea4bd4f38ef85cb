"""A small GAN: numbers from two heaps, a generator that is to draw the like, a discriminator that tells them apart."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import alchemy
from alchemy.model import AlchemyModel
from alchemy.pipeline import EndEpochPipeline, EvalPipeline, LstDataPipeline, SchedPipeline

MEAN, SPREAD = 1.0, 1.25  # of heaps around 0 and 2, each 0.75 wide


class Heaps(LstDataPipeline):
    """Each sample is a number `x` from one of the heaps and the noise `z` that a fake is made of."""

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
    """The discriminator learns in every step, the generator in every `n_critic`-th, of the discriminator as it is then.

    With `turns` they take turns instead, an update each: then micro-batches can be accumulated.
    """

    def __init__(self, *, width: int = 16, n_critic: int = 1, turns: bool = False, double: bool = False) -> None:
        super().__init__()
        self.model = Pair(width).double() if double else Pair(width)
        self.n_critic, self.turns = n_critic, turns
        self.order: list[str] = []  # of the losses in training

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        weight = next(self.module.parameters())
        x, z = batch["x"].to(weight.dtype), batch["z"].to(weight.dtype)
        fake = self.model(z)
        if not needs_loss:
            return {"fake": fake}
        discriminator, generator = self._whose_turn() if requires_grad else (True, True)
        outputs: dict[str, Any] = {"fake": fake, "count": len(x)}
        if discriminator:
            judge = self.module.discriminator
            self._learn(
                outputs, "discriminator", softplus(-judge(x)).sum() + softplus(judge(fake)).sum(), requires_grad
            )
        if generator:
            self._learn(outputs, "generator", softplus(-self.module.discriminator(fake)).sum(), requires_grad)
        return outputs

    def _learn(self, outputs: dict[str, Any], name: str, loss_sum: Tensor, requires_grad: bool) -> None:
        self.order.append(name)
        loss = self.backward.backward(loss_sum, count=outputs["count"], requires_grad=requires_grad, optim=name)
        outputs |= {"loss": loss, "loss_sum": loss_sum.detach()}

    def _whose_turn(self) -> tuple[bool, bool]:
        if self.turns:
            return self.backward.updates % 2 == 0, self.backward.updates % 2 == 1
        return True, (self.run.train_sched.cur_step + 1) % self.n_critic == 0


class Blend(Gan):
    """Both parts under one loss that names no optimiser."""

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        weight = next(self.module.parameters())
        guess = self.module.discriminator(self.module.generator(batch["z"].to(weight.dtype)))
        loss_sum, count = (guess - batch["x"]).square().sum(), len(guess)
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"loss": loss, "loss_sum": loss_sum.detach(), "count": count}


class ByHook(Gan):
    """Says itself which parameters an optimiser takes, in groups of its own."""

    def optim_params(self, name: str, bias_lr: float = 0.0, **table: Any) -> Any:
        part = getattr(self.module, name)
        biases = {id(layer.bias) for layer in part if hasattr(layer, "bias")}
        return [
            {"params": [p for p in part.parameters() if id(p) not in biases]},
            {"params": [p for p in part.parameters() if id(p) in biases], "lr": bias_lr},
        ]


@EvalPipeline.register()
class Moments(EvalPipeline):
    """The mean and the spread of what the generator draws."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        weight = next(self.run.model.parameters())
        fakes = self.run.model.module(Heaps(count=4000, seed=7).zs.to(weight.dtype))
        return {**kwargs, "mean": float(fakes.mean()), "spread": float(fakes.std())}


@SchedPipeline.register()
class Keep(EndEpochPipeline):
    """Writes the weights that this process has to a file."""

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
    """Ten updates of the toy GAN; `changes` replace whole top-level tables, or keys as `sched__epochs=2`."""
    data = {"pipes": [{"type": "tests.gan.Heaps"}], "batch_size": 64}
    logs = [] if log_dir is None else [{"type": "alchemy.plugins.FileLogger", "log_dir": str(log_dir)}]
    cfg: dict[str, Any] = {
        "tag": "gan",
        "seed": 1,
        "log_every": 5,
        "runner": "alchemy.runner.Trainer",
        "plugins": logs,
        "task": {
            "type": "alchemy.task.DefaultTask",
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
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        cfg[table] = {**cfg[table], inner: value} if inner else value
    return cfg


# the same updates for any number of processes; 512 samples are 10 whole batches and a part of one
TRAININGS: dict[str, dict[str, Any]] = {
    "alternating": {"n_critic": 2},
    "taking turns": {"turns": True, "period": 2},
    "all at once": {"type": "tests.gan.Blend"},
}


def train(out: Path) -> None:
    """One epoch of each, in float64."""
    for name, changes in TRAININGS.items():
        model = {"type": "tests.gan.Gan", "double": True, **{k: v for k, v in changes.items() if k != "period"}}
        sched = {
            "type": "alchemy.sched.Constant",
            "epochs": 1,
            "pipes": [{"type": "tests.gan.Keep", "into": str(out / name)}],
        }
        backward = {"period": changes.get("period", 1)}
        cfg = config(out / "records" / name, model=model, sched=sched, backward=backward)
        cfg["task"]["datasets"]["train"]["batch_size"] = 50
        alchemy.run([cfg], device=[-1], raise_errors=True)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
