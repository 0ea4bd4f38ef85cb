"""Schedules that follow a curve or a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from loguru import logger

from alchemy.constraints import FiniteFloat, NonNegativeFloat, NonNegativeInt, PositiveInt
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn import lr_curves
from alchemy.nn.lr_curves import BadScores
from alchemy.sched.base import AlchemyTrainScheduler


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Constant(AlchemyTrainScheduler):
    """A constant learning rate after an optional warmup."""

    num_warmup_steps: NonNegativeFloat = 0

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)

    def lr_at(self, base: float, t: int) -> float:
        return base * lr_curves.constant(t, warmup=self._warmup)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class LineWarmup(AlchemyTrainScheduler):
    """Linear warmup, then linear decay to 0 at the end of training."""

    num_warmup_steps: NonNegativeFloat = 0
    factor: FiniteFloat = 1.0
    # lengths that were already warned about; they are computed again when a run is resumed
    _warned: tuple[int, int] | None = field(default=None, init=False)

    def settle(self) -> None:
        self._total, self._warmup = self.horizon(), self.warmup(self.num_warmup_steps)
        lengths = (self._warmup, self._total)
        if (
            self._warmup >= self._total
            and self._warned != lengths
            and not (self.run.limits.max_batches or self.run.limits.overfit)
        ):
            self._warned = lengths
            logger.warning("[sched] the warmup ({}) is not shorter than training ({})", *lengths)

    def lr_at(self, base: float, t: int) -> float:
        return base * self.factor * lr_curves.linear(t, warmup=self._warmup, total=self._total)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Step(AlchemyTrainScheduler):
    """Multiply the learning rate by `gamma` every `step_size` updates or epochs."""

    step_size: PositiveInt
    gamma: FiniteFloat = 0.1

    def lr_at(self, base: float, t: int) -> float:
        return base * lr_curves.step(t, step_size=self.step_size, gamma=self.gamma)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class MultiStep(AlchemyTrainScheduler):
    """Multiply the learning rate by `gamma` at every milestone."""

    milestones: Sequence[NonNegativeInt]
    gamma: FiniteFloat = 0.1

    def lr_at(self, base: float, t: int) -> float:
        return base * lr_curves.multi_step(t, milestones=self.milestones, gamma=self.gamma)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Exponential(AlchemyTrainScheduler):
    """Multiply the learning rate by `gamma` every update or epoch."""

    gamma: FiniteFloat

    def lr_at(self, base: float, t: int) -> float:
        return base * lr_curves.exponential(t, gamma=self.gamma)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Cosine(AlchemyTrainScheduler):
    """Linear warmup, then cosine decay to `eta_min`.

    Without `t_max`, the decay ends with training. With `t_max`, it ends there and the rate rises again, as in torch.
    `restarts` is the number of warm restarts. With `t_0`, the first cycle has that length, and each
    subsequent cycle is `t_mult` times as long.
    """

    num_warmup_steps: NonNegativeFloat = 0
    t_max: PositiveInt | None = None
    eta_min: FiniteFloat = 0.0
    restarts: NonNegativeInt = 0
    t_0: PositiveInt | None = None
    t_mult: PositiveInt = 1

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)
        needs = self.t_max is None and self.t_0 is None
        self._total = max(1, self.horizon() - self._warmup) if needs else 0

    def lr_at(self, base: float, t: int) -> float:
        if t < self._warmup:
            return base * t / self._warmup
        return self.eta_min + (base - self.eta_min) * self._wave(t - self._warmup)

    def _wave(self, t: int) -> float:
        if self.t_0 is not None:
            return lr_curves.cosine_restarts(t, t_0=self.t_0, t_mult=self.t_mult)
        if self.t_max is not None:
            return lr_curves.cosine(t, t_max=self.t_max)
        return lr_curves.cosine_cycles(t, total=self._total, cycles=self.restarts + 1)


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Polynomial(AlchemyTrainScheduler):
    """Linear warmup, then polynomial decay to `lr_end`."""

    num_warmup_steps: NonNegativeFloat = 0
    power: FiniteFloat = 1.0
    lr_end: FiniteFloat = 0.0

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)
        self._total = max(1, self.horizon() - self._warmup)

    def lr_at(self, base: float, t: int) -> float:
        if t < self._warmup:
            return base * t / self._warmup
        left = lr_curves.polynomial(t - self._warmup, total=self._total, power=self.power)
        return self.lr_end + (base - self.lr_end) * left


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class InverseSqrt(AlchemyTrainScheduler):
    """Linear warmup from `warmup_init_lr`, then decay with the inverse square root of the number of updates."""

    num_warmup_steps: NonNegativeFloat = 0
    timescale: PositiveInt | None = None
    warmup_init_lr: FiniteFloat = 0.0

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)

    def lr_at(self, base: float, t: int) -> float:
        # without warmup, the curve still needs a time scale; transformers uses 10,000
        factor = lr_curves.inverse_sqrt(t, warmup=self._warmup, timescale=self.timescale or self._warmup or 10_000)
        return base * factor if t >= self._warmup else self.warmup_init_lr + (base - self.warmup_init_lr) * factor


@AlchemyTrainScheduler.register()
@dataclass(kw_only=True, eq=False)
class Plateau(AlchemyTrainScheduler):
    """Multiply the learning rate by `factor` when `monitor` has not improved for `patience` evaluations."""

    monitor: str = "dev/loss"
    mode: Literal["min", "max"] = "min"
    factor: FiniteFloat = 0.1
    patience: NonNegativeInt = 10
    threshold: FiniteFloat = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: NonNegativeInt = 0
    min_lr: FiniteFloat = 0.0
    unit: Literal["step", "epoch"] = field(default="step", init=False)  # follows evaluations

    def settle(self) -> None:
        self._watch = BadScores(
            mode=self.mode,
            patience=self.patience,
            threshold=self.threshold,
            threshold_mode=self.threshold_mode,
            cooldown=self.cooldown,
        )
        self._cuts = 0

    def lr_at(self, base: float, t: int) -> float:
        return max(base * self.factor**self._cuts, min(base, self.min_lr))

    def after_eval(self, results: Mapping[str, Any]) -> None:
        split, _, name = self.monitor.rpartition("/")
        if split and split != next(reversed(self.run.progress.scores)):
            return
        if name not in results:
            hint = did_you_mean(name, results) or f"it has {', '.join(results)}"
            raise AlchemyError(f"the evaluation has no metric {self.monitor!r}", section="sched", hint=hint)
        if self._watch.update(float(results[name])):
            self._cuts += 1
            self.write_lr()
            logger.info("{} has not improved: the learning rate is now {}", self.monitor, self.run.optim.get_lr())

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "cuts": self._cuts, "watch": self._watch.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._cuts = int(state["cuts"])
        self._watch.load_state_dict(state["watch"])
        self.write_lr()
