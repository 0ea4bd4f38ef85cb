"""The contract of weight averaging, and its two kinds: exponential (EMA) and plain (SWA)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any

from loguru import logger

from alchemy.constraints import Ge, Lt, NonNegativeInt, PositiveInt
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError
from alchemy.nn.weight_average import Shadow
from alchemy.null_objects import NoAverage
from alchemy.registry import Registrable, build, construct


class Average(Registrable):
    """Weights averaged over training; evaluations, and what they save, use them. A subclass defines `share`.

    Averaging begins after `start` updates, and takes every `every`-th from there.
    """

    def __init__(self, *, start: NonNegativeInt = 0, every: PositiveInt = 1) -> None:
        self.run: Run = current_run()
        self.start, self.every = start, every
        self.updates = 0  # how often the average was moved
        self._shadow: Shadow | None = None
        self._module: Any = None

    def share(self, updates: int) -> float:
        """How far the average moves towards the new weights, when it was moved `updates` times before."""
        raise NotImplementedError(f"{type(self).__name__} must define share(self, updates)")

    def after_update(self, update: int) -> None:
        """Called with the number of updates made so far."""
        if update < self.start or (update - self.start) % self.every:
            return
        if self.run.model.module is not self._module:
            self._begin()
        assert self._shadow is not None
        self._shadow.lerp(self.share(self.updates))
        self.updates += 1

    def _begin(self) -> None:
        if self._shadow is not None and self.updates:
            logger.warning("the parameters of the model were replaced: their average begins again")
        self._module, self.updates = self.run.model.module, 0
        self._shadow = Shadow(self.run.model.named_parameters())

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """The model has the averaged weights while this lasts; buffers stay as they are."""
        if self._shadow is None or not self.updates:
            return contextlib.nullcontext()
        if not self._shadow.is_of(self.run.model.named_parameters()):
            self._begin()
        return self._shadow.applied()

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "weights": {} if self._shadow is None else self._shadow.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._shadow = None
        self._begin()
        assert self._shadow is not None
        self.updates = int(state["updates"])
        self._shadow.load(state["weights"])


@Average.register()
class EMA(Average):
    """An exponential moving average; with `warmup` the decay is lower at first, so that the start is soon forgotten."""

    def __init__(
        self,
        *,
        decay: Annotated[float, Ge(0), Lt(1)] = 0.999,
        warmup: bool = True,
        every: PositiveInt = 1,
        start: NonNegativeInt = 0,
    ) -> None:
        super().__init__(start=start, every=every)
        self.decay, self.warmup = decay, warmup

    def share(self, updates: int) -> float:
        return 1.0 - min(self.decay, (1 + updates) / (10 + updates) if self.warmup else 1.0)


@Average.register()
class SWA(Average):
    """The plain mean of the weights from `start` on: an update, or as a fraction a share of the whole training."""

    def __init__(
        self, *, start: NonNegativeInt | Annotated[float, Ge(0), Lt(1)] = 0.75, every: PositiveInt = 1
    ) -> None:
        super().__init__(start=0, every=every)
        self.start = self._first(start)

    def _first(self, start: int | float) -> int:
        if not 0 < start < 1:
            return int(start)
        updates = self.run.train_sched.total_updates
        if updates is None:
            hint = "give start as a number of updates, or num_training_steps in [sched]"
            raise AlchemyError(f"start is {start} of a training of unknown length", section="ema", hint=hint)
        return round(start * updates)

    def share(self, updates: int) -> float:
        return 1.0 / (updates + 1)


def build_average(run: Run) -> Average | NoAverage:
    """What `[ema]` says; EMA unless it has another `type`. Built after the schedule, which knows the length."""
    table = run.cfg.get("ema")
    if table is None:
        return NoAverage()
    average: Average = build(Average, table, section="ema") if "type" in table else construct(EMA, table, section="ema")
    return average
