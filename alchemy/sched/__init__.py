"""Training schedules: the contract, the curves."""

from __future__ import annotations

from typing import Any, Literal

from alchemy.constraints import FiniteFloat, NonNegativeFloat, PositiveFloat, PositiveInt
from alchemy.errors import AlchemyError
from alchemy.nn import curves
from alchemy.nn.curves import NoamScheduler
from alchemy.sched.base import AlchemyTrainScheduler, build_sched
from alchemy.sched.parts import (
    Constant,
    Cosine,
    Exponential,
    InverseSqrt,
    LineWarmup,
    MultiStep,
    Plateau,
    Polynomial,
    Step,
)

__all__ = [
    "AlchemyTrainScheduler",
    "Constant",
    "Cosine",
    "Exponential",
    "InverseSqrt",
    "LineWarmup",
    "MultiStep",
    "Noam",
    "NoamScheduler",
    "Plateau",
    "Polynomial",
    "Step",
    "build_sched",
]


# here, so that a config may name it by its old name too, while code that imports that name gets the scheduler of torch
@AlchemyTrainScheduler.register("NoamScheduler")
class Noam(AlchemyTrainScheduler):
    """The rate of "Attention is all you need", in place of the optimiser's.

    `model_size` is the hidden size that the model's `config` gives, unless it is set.
    """

    def __init__(
        self,
        *,
        epochs: PositiveFloat | None = None,
        num_training_steps: PositiveInt | None = None,
        num_warmup_steps: NonNegativeFloat = 0,
        factor: FiniteFloat = 1.0,
        model_size: PositiveInt | None = None,
        unit: Literal["step", "epoch"] = "step",
    ) -> None:
        self.num_warmup_steps, self.factor, self.model_size = num_warmup_steps, factor, model_size
        super().__init__(epochs=epochs, num_training_steps=num_training_steps, unit=unit)

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)
        self._size = self.model_size or _hidden_size(self.run.model)

    def lr_at(self, base: float, t: int) -> float:
        return curves.noam(t, model_size=self._size, warmup=self._warmup, factor=self.factor)


def _hidden_size(model: Any) -> int:
    for owner in (model, getattr(model, "module", None)):
        config = getattr(owner, "config", None)
        for name in ("hidden_size", "d_model"):
            if getattr(config, name, None):
                return int(getattr(config, name))
    raise AlchemyError("Noam must know the hidden size of the model", section="sched", hint="set model_size")
