"""A GAN whose `forward` calls the backward handler once for each of its two named optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from alchemy.model import AlchemyModel
from alchemy.pipeline import LstDataPipeline


class Numbers(LstDataPipeline):
    """Numbers around 3."""

    def __init__(self, *, count: int = 36) -> None:
        super().__init__()
        self.numbers = 3 + torch.randn(count, 1, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.numbers[index]}


class Pair(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
        self.discriminator = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, 1))


class Gan(AlchemyModel):
    """Update the discriminator in every step, the generator in every `n_critic`-th; with `turns`, they alternate."""

    def __init__(self, *, width: int = 8, n_critic: int = 1, turns: bool = False) -> None:
        super().__init__()
        self.model = Pair(width)
        self.n_critic, self.turns = n_critic, turns

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        generator, discriminator = self.module.generator, self.module.discriminator
        real, count = batch["x"], len(batch["x"])
        # drawn in the step, so that a change of its random stream is detected
        fake = generator(torch.randn(count, 2))
        outputs: dict[str, Any] = {"fake": fake, "count": count}
        for name in self._learners(requires_grad) if needs_loss else ():
            # evaluate the discriminator again: its weights may have just changed
            loss_sum = softplus(-discriminator(fake)).sum()
            if name == "discriminator":
                loss_sum = softplus(-discriminator(real)).sum() + softplus(discriminator(fake)).sum()
            loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad, optim=name)
            outputs |= {"loss": loss, "loss_sum": loss_sum.detach()}
        return outputs

    def _learners(self, requires_grad: bool) -> tuple[str, ...]:
        both, sched = ("discriminator", "generator"), self.run.train_sched
        if not requires_grad:
            return both
        if self.turns:
            return (both[sched.num_updates % 2],)
        return both if (sched.cur_step + 1) % self.n_critic == 0 else both[:1]
