"""Weight averaging: exponential moving average (EMA) and stochastic weight averaging (SWA)."""

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
    """Base class for weight averages, which replace the weights in evaluations and saved models.

    Averaging starts after `start` updates and includes the weights every `every` updates. Subclasses define `share`.
    """

    def __init__(self, *, start: NonNegativeInt = 0, every: PositiveInt = 1) -> None:
        self.run: Run = current_run()
        self.start, self.every = start, every
        self.updates = 0  # number of sets of weights averaged so far
        self._shadow: Shadow | None = None
        self._module: Any = None

    def share(self, updates: int) -> float:
        """Return the weight of the new parameters in the average, given the number of updates averaged so far."""
        raise NotImplementedError(f"{type(self).__name__} must define share(self, updates)")

    def after_update(self, update: int) -> None:
        """Called after every update, with the number of updates so far."""
        if update < self.start or (update - self.start) % self.every:
            return
        if self.run.model.module is not self._module:
            self._begin()
        assert self._shadow is not None
        self._shadow.lerp(self.share(self.updates))
        self.updates += 1

    def _begin(self) -> None:
        if self._shadow is not None and self.updates:
            logger.warning("the model's parameters were replaced: restarting the average")
        self._module, self.updates = self.run.model.module, 0
        self._shadow = Shadow(self.run.model.named_parameters())

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which the model uses the averaged weights; its buffers do not change."""
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
    """Exponential moving average; `warmup` lowers the decay at first, so the initial weights are forgotten quickly."""

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
    """Stochastic weight averaging: the mean of the weights after `start`.

    `start` is a number of updates or a fraction of all updates.
    """

    def __init__(
        self, *, start: NonNegativeInt | Annotated[float, Ge(0), Lt(1)] = 0.75, every: PositiveInt = 1
    ) -> None:
        super().__init__(start=0, every=every)
        self.start = self._first_update(start)

    def _first_update(self, start: int | float) -> int:
        if not 0 < start < 1:
            return int(start)
        updates = self.run.train_sched.total_updates
        if updates is None:
            hint = "set start to a number of updates, or set num_training_steps in [sched]"
            text = f"start = {start} is a fraction, but the number of updates is unknown"
            raise AlchemyError(text, section="ema", hint=hint)
        return round(start * updates)

    def share(self, updates: int) -> float:
        return 1.0 / (updates + 1)


def build_average(run: Run) -> Average | NoAverage:
    """Build the average from `[ema]`, by default EMA; build the schedule first, which sets the length of training."""
    table = run.cfg.get("ema")
    if table is None:
        return NoAverage()
    average: Average = build(Average, table, section="ema") if "type" in table else construct(EMA, table, section="ema")
    return average
