"""The backward handler that legacy models call inside `forward`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from loguru import logger
from torch import Tensor

from alchemy.constraints import PositiveInt
from alchemy.context import Run, current_run
from alchemy.loss_observer import Loss
from alchemy.nn.loss_reduction import by_name, differentiable, mean, weighted_sum
from alchemy.null_objects import NoUpdater, Updater
from alchemy.registry import Registrable, build, construct
from alchemy.update import GradientUpdater


class BackwardHandler(Registrable):
    """Base class for handlers that compute gradients and make updates. Subclasses define `backward`.

    A handler that accumulates gradients sets `period` to the number of steps and `is_open` while gradients are pending,
    and makes the last update of an epoch in `flush`.
    """

    period: int = 1
    is_open: bool = False

    def __init__(self) -> None:
        self.run: Run = current_run()

    def backward(
        self,
        losses: Tensor | Sequence[Any],
        weights: Sequence[Any] | None = None,
        requires_grad: bool = True,
        names: Sequence[str] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define backward(losses, weights, requires_grad, names)")

    def flush(self) -> None:
        """Called at the end of an epoch."""


@BackwardHandler.register("Default")
class DefaultBackwardHandler(BackwardHandler):
    """A handler that passes losses to the updater of the run and makes the update as soon as a window is full.

    With `count`, the loss is a sum; without it, it is a mean and every step has the same weight. `optim` names the
    optimizer for a loss if there are several.
    """

    def __init__(
        self,
        *,
        period: PositiveInt = 1,
        window: PositiveInt | None = None,
        nonfinite: Literal["stop", "skip", "ignore"] = "stop",
    ) -> None:
        super().__init__()
        self.nonfinite = nonfinite
        self._cut = {"period": period, "window": window}
        self.calls = 0  # number of calls with requires_grad

    def make_updater(self) -> GradientUpdater:
        return GradientUpdater(**self._cut, nonfinite=self.nonfinite)  # type: ignore[arg-type]

    @property
    def _updater(self) -> Updater:
        """The updater of the run, created here if the runner did not create one."""
        if isinstance(self.run.updater, NoUpdater):
            self.run.updater = self.make_updater()
        return self.run.updater

    @property
    def period(self) -> int:  # type: ignore[override]
        """The number of steps per update."""
        return self._updater.period

    @property
    def updates(self) -> int:
        return self._updater.updates

    @property
    def is_open(self) -> bool:  # type: ignore[override]
        return self._updater.is_open

    @property
    def real(self) -> bool:
        """Whether the batch is real; False if it is computed only because other processes still have batches."""
        return not isinstance(self._updater, GradientUpdater) or self._updater.real

    def flush(self) -> None:
        """Make the update for an incomplete window."""
        self._updater.flush()

    def backward(
        self,
        losses: Tensor | Sequence[Any],
        weights: Sequence[Any] | None = None,
        requires_grad: bool = True,
        names: Sequence[str] | None = None,
        count: float | Tensor | None = None,
        optim: str | None = None,
    ) -> Any:
        """Return the loss as a float or, with `count`, the mean as a 0-d tensor without synchronizing the device."""
        loss = losses if isinstance(losses, Tensor) and weights is None else weighted_sum(losses, weights)
        if requires_grad:
            self.calls += 1
            if self.run.debug:
                for name, value in by_name(losses, names):
                    logger.debug("loss {} = {}", name, value)
            updater = self._updater
            loss = differentiable(loss)
            updater.accumulate(Loss(loss, 1 if count is None else count, is_mean=count is None), optim or "")
            updater.end_micro_batch()
            if updater.is_full:
                updater.step()
        if count is None:
            return loss.item() if isinstance(loss, Tensor) else float(loss)
        return mean(loss.detach() if isinstance(loss, Tensor) else torch.as_tensor(loss), count)


Default = DefaultBackwardHandler  # `type = "alchemy.model.Default"` in a config


def build_handler(run: Run) -> BackwardHandler:
    """Build the handler from `[backward]`."""
    table = run.cfg.get("backward")
    named = table is not None and "type" in table
    make = build if named else construct
    handler: BackwardHandler = make(
        BackwardHandler if named else DefaultBackwardHandler, table or {}, section="backward"
    )
    return handler
