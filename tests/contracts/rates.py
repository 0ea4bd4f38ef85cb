"""Record the learning rates of a schedule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from alchemy.context import Run
from tests.ready import ready
from tests.toy import config

OPTIM = {"type": "torch.optim.SGD", "lr": 0.5}


def training(sched: dict[str, Any], **changes: Any) -> AbstractContextManager[Run]:
    """A run ready to train: 16 points in batches of 4."""
    return ready(config(sched=sched, optim=changes.pop("optim", OPTIM), **changes))


def ours(unit: str, count: int, **table: Any) -> list[float]:
    """Return the learning rate before each of `count` updates, or epochs of two updates."""
    rates: list[float] = []
    with training({"unit": unit, **table}) as run:
        for _ in range(count):
            rates += run.optim.get_lr()
            if unit == "step":
                run.train_sched.step_lr()
            else:
                run.train_sched.cur_epoch += 1
                for _ in range(2):
                    run.train_sched.step_lr()
                    assert run.optim.get_lr() == rates[-1:]
                run.train_sched.end_train_epoch()
    return rates


def theirs(make: Callable[[torch.optim.Optimizer], Any], count: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sched = make(optimizer)
        rates = []
        for _ in range(count):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            sched.step()
    return rates
