"""Learning-rate curves as pure functions of the number of updates, or epochs, so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def constant(t: int, *, warmup: int = 0) -> float:
    """Rise linearly to 1 over `warmup`, then stay at 1."""
    return min(1.0, t / warmup) if warmup else 1.0


def linear(t: int, *, warmup: int, total: int) -> float:
    """Rise linearly to 1 over `warmup`, then decay linearly to 0 at `total`."""
    if t < warmup:
        return t / max(1, warmup)
    return max(0.0, (total - t) / max(1, total - warmup))


def step(t: int, *, step_size: int, gamma: float) -> float:
    return gamma ** (t // step_size)


def multi_step(t: int, *, milestones: Sequence[int], gamma: float) -> float:
    return gamma ** sum(t >= milestone for milestone in milestones)


def exponential(t: int, *, gamma: float) -> float:
    return gamma**t


def cosine(t: float, *, t_max: float) -> float:
    """Decay to 0 at `t_max` along half a cosine, then rise again, like torch's CosineAnnealingLR."""
    return (1 + math.cos(math.pi * t / t_max)) / 2 if t_max else 1.0


def cosine_cycles(t: int, *, total: int, cycles: float) -> float:
    """Decay from 1 to 0 `cycles` times, with restarts in between; return 0 from `total` on."""
    progress = t / max(1, total)
    return 0.0 if progress >= 1.0 else cosine((cycles * progress) % 1.0, t_max=1.0)


def cosine_restarts(t: int, *, t_0: int, t_mult: int = 1) -> float:
    """Decay over `t_0`, `t_0 * t_mult`, `t_0 * t_mult^2`, .. updates, with a restart after each cycle."""
    if t_mult == 1:
        return cosine(t % t_0, t_max=t_0)
    length = t_0
    while t >= length:
        t, length = t - length, length * t_mult
    return cosine(t, t_max=length)


def polynomial(t: int, *, total: int, power: float) -> float:
    return max(0.0, 1 - t / max(1, total)) ** power


def inverse_sqrt(t: int, *, warmup: int, timescale: int) -> float:
    """Rise linearly to 1 over `warmup`, then decay as the inverse square root: sqrt(1/2) after `timescale` more."""
    if t < warmup:
        return t / max(1, warmup)
    return 1.0 / math.sqrt((t + timescale - warmup) / timescale)


def noam(t: int, *, model_size: int, warmup: int, factor: float = 1.0) -> float:
    """Return the learning rate from "Attention is all you need" (not a factor); the first step is number 1."""
    number = t + 1
    rise = number * warmup**-1.5 if warmup else math.inf
    return factor * model_size**-0.5 * min(number**-0.5, rise)


class NoamScheduler(LRScheduler):
    """The Noam curve as a torch scheduler: one learning rate for all groups.

    `self.lr_sched = NoamScheduler(optimizer, model_size=512, num_warmup_steps=4000)`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model_size: int,
        num_warmup_steps: int = 0,
        factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        # set before super().__init__, which computes the first rate; torch removed `verbose`, but it is still accepted
        self.model_size, self.num_warmup_steps, self.factor = model_size, num_warmup_steps, factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:  # type: ignore[override]
        rate = noam(self.last_epoch, model_size=self.model_size, warmup=self.num_warmup_steps, factor=self.factor)
        return [rate for _ in self.optimizer.param_groups]


class BadScores:
    """Counts bad scores like torch's ReduceLROnPlateau: `update(score)` returns True when the patience is exhausted."""

    def __init__(self, *, mode: str, patience: int, threshold: float, threshold_mode: str, cooldown: int) -> None:
        self.mode, self.patience, self.threshold = mode, patience, threshold
        self.threshold_mode, self.cooldown = threshold_mode, cooldown
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.cooling = 0

    def update(self, score: float) -> bool:
        if self._better(score):
            self.best, self.bad = score, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling -= 1
            self.bad = 0
        if self.bad <= self.patience:
            return False
        self.bad, self.cooling = 0, self.cooldown
        return True

    def _better(self, score: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        margin = self.threshold * abs(self.best) if self.threshold_mode == "rel" else self.threshold
        return sign * score > sign * self.best + (0.0 if math.isinf(self.best) else margin)

    def state_dict(self) -> dict[str, Any]:
        # as text, because JSON cannot represent infinity
        return {"best": repr(self.best), "bad": self.bad, "cooling": self.cooling}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.bad, self.cooling = float(state["best"]), int(state["bad"]), int(state["cooling"])
