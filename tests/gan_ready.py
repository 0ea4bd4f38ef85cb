"""Build the toy GAN, ready for steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from alchemy.context import Run
from alchemy.legacy.adapt import build_updater
from alchemy.optim import build_optimizer
from alchemy.plain_model import build_model
from alchemy.precision import build_precision
from alchemy.sched import build_sched
from alchemy.task import build_task
from tests.gan import Heaps, changed

SGD = {"type": "torch.optim.SGD", "lr": 0.1}


@contextmanager
def training(**changes: Any) -> Iterator[Any]:
    """Return a GAN in float64 with SGD, ready for steps, with `changes` of its config."""
    cfg: dict[str, Any] = {
        "seed": 1,
        "task": {"type": "tests.gan.Adversarial"},
        "model": {"type": "tests.gan.Gan", "double": True},
        "optim": {name: {**SGD, "params": f"{name}.*"} for name in ("generator", "discriminator")},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 1},
    }
    with Run(changed(cfg, **changes)) as run:
        torch.manual_seed(0)
        run.precision = build_precision(run)
        run.task, run.model = build_task(run), build_model(run)
        run.optim = build_optimizer(run)
        run.updater = build_updater(run, run.model)
        run.train_sched = build_sched(run)
        yield run


def batches(size: int, count: int = 12) -> list[dict[str, Tensor]]:
    data = Heaps(count=count)
    return [{"x": x, "z": z} for x, z in zip(data.xs.split(size), data.zs.split(size))]


def step(run: Run, batch: dict[str, Tensor]) -> None:
    """Do one step, as the loop does."""
    run.train_sched.begin_train_step(batch)
    with run.updater.micro_batch(batch):
        run.task.train_step(batch, run.updater)
    if run.updater.is_full:
        run.updater.step()


def weights_of(run: Run, name: str = "") -> list[Tensor]:
    return [p.detach().clone() for known, p in run.model.named_parameters() if known.startswith(name)]
