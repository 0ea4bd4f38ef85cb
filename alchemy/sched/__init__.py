"""Training schedules: the base class and the learning-rate schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from alchemy.constraints import FiniteFloat, NonNegativeFloat, PositiveInt
from alchemy.errors import AlchemyError
from alchemy.nn import lr_curves
from alchemy.nn.lr_curves import NoamScheduler
from alchemy.sched.base import AlchemyTrainScheduler, build_sched
from alchemy.sched.schedules import (
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

if TYPE_CHECKING:
    from alchemy.model import AlchemyModel

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


# registered under its old name for configs; code that imports this name gets the torch scheduler
@AlchemyTrainScheduler.register("NoamScheduler")
@dataclass(kw_only=True, eq=False)
class Noam(AlchemyTrainScheduler):
    """The schedule of "Attention is all you need"; ignores the optimizer's learning rate.

    `model_size` defaults to the hidden size in the model's `config`.
    """

    num_warmup_steps: NonNegativeFloat = 0
    factor: FiniteFloat = 1.0
    model_size: PositiveInt | None = None

    def settle(self) -> None:
        self._warmup = self.warmup(self.num_warmup_steps)
        self._size = self.model_size or _hidden_size(self.run.model)

    def lr_at(self, base: float, t: int) -> float:
        return lr_curves.noam(t, model_size=self._size, warmup=self._warmup, factor=self.factor)


def _hidden_size(model: AlchemyModel) -> int:
    """Return the hidden size from a transformers `config` of the model or its module."""
    configs = [getattr(owner, "config", None) for owner in (model, model.module)]
    sizes = [getattr(config, name, None) for config in configs for name in ("hidden_size", "d_model")]
    if size := next(filter(None, sizes), None):
        return int(size)
    raise AlchemyError("Noam needs the hidden size of the model", section="sched", hint="set model_size")
