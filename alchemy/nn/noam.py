"""The Noam curve as a scheduler of torch, for code that drives an optimiser itself."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from alchemy.nn.curves import noam


class NoamScheduler(LRScheduler):
    """`self.lr_sched = NoamScheduler(optimizer, model_size=512, num_warmup_steps=4000)`; one rate for all groups."""

    def __init__(
        self,
        optimizer: Optimizer,
        model_size: int,
        num_warmup_steps: int = 0,
        factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        # before super().__init__, which computes the first rate; `verbose` is gone from torch and accepted still
        self.model_size, self.num_warmup_steps, self.factor = model_size, num_warmup_steps, factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:  # type: ignore[override]
        rate = noam(self.last_epoch, model_size=self.model_size, warmup=self.num_warmup_steps, factor=self.factor)
        return [rate for _ in self.optimizer.param_groups]
