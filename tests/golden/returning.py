"""The GAN of `gan.py` as a model that returns its outputs and losses, and a task that passes them to the updater."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from alchemy.loss_observer import Loss
from alchemy.model import AlchemyModel
from alchemy.null_objects import Updater
from alchemy.task import AlchemyTask
from tests.golden.gan import Pair


class Gan(AlchemyModel):
    def __init__(self, *, width: int = 8) -> None:
        super().__init__()
        self.model = Pair(width)

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"fake": self.module.generator(torch.randn(len(batch["x"]), 2))}

    def loss(self, outputs: Mapping[str, Any], batch: Any, player: str = "generator") -> tuple[Tensor, int]:
        judge, real, fake = self.module.discriminator, batch["x"], outputs["fake"]
        fooled = softplus(-judge(fake)).sum()  # computed for both players, as in `gan.py`: its dropout draws numbers
        if player == "generator":
            return fooled, len(real)
        return softplus(-judge(real)).sum() + softplus(judge(fake)).sum(), len(real)


class Adversarial(AlchemyTask):
    """Update the discriminator in every step, the generator in every `n_critic`-th; with `turns`, they alternate."""

    def __init__(self, *, n_critic: int = 1, turns: bool = False) -> None:
        super().__init__()
        self.n_critic, self.turns = n_critic, turns

    def train_step(self, batch: Any, updater: Updater) -> Mapping[str, Any]:
        model: Any = self.run.model
        outputs = model.forward(batch)
        for player in self._players(updater.updates):
            total, count = model.loss(outputs, batch, player)
            loss = Loss(total, count, outputs)
            updater.accumulate(loss, optim=player)
        return loss.merged()

    def _players(self, updates: int) -> tuple[str, ...]:
        both = ("discriminator", "generator")
        if self.turns:
            return (both[updates % 2],)
        return both if (self.run.train_sched.cur_step + 1) % self.n_critic == 0 else both[:1]
