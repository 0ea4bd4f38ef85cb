"""The micro-batches since an optimizer's last update: how many, what they count, whether their losses are finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.optim import AlchemyOptimizer


class AccumulationWindow:
    """What has been accumulated for one optimizer: all parameters, or with a `name` those of one of several."""

    def __init__(self, run: Run, name: str = "") -> None:
        self.run, self.name = run, name
        self.updates = 0
        self.fresh = True  # no loss has come yet: gradients found now were computed before training
        self.finite: Tensor | None = None  # of an update on a device, where nobody has read it yet
        self.clear()

    def clear(self) -> None:
        self.steps = 0
        self.count: float | Tensor = 0
        self.flag: float | Tensor = 0.0  # zero times the losses: NaN if one of them is not finite
        self.divisor: float = 0  # the count by which the gradients have been divided already; 0 for none
        self.touched = False  # whether a loss came in the micro-batch that is under way

    @property
    def optim(self) -> AlchemyOptimizer:
        optim: Any = self.run.optim
        return optim[self.name] if self.name else optim

    @property
    def position(self) -> tuple[int, int, float]:
        return self.updates, self.steps, float(self.count)

    def begin(self) -> None:
        """Drops gradients that were computed before training."""
        if self.fresh:
            self.optim.zero_grad()
            self.fresh = False

    def undo_division(self) -> None:
        """Another loss came for the same update: gradients of sums are what adds up."""
        if self.divisor:
            self.optim.multiply_grads(self.divisor)
            self.count, self.divisor = self.divisor, 0

    def add(self, loss: Tensor, count: float | Tensor) -> None:
        if isinstance(count, Tensor) and count.device.type == "cpu":
            count = count.item()
        self.count = self.count + count
        self.flag = self.flag + 0.0 * (loss.item() if loss.device.type == "cpu" else loss.detach())
        self.touched = True

    def differentiate(self, loss: Tensor, start: Tensor) -> None:
        """Adds the gradients of `start` times a loss to the parameters of a named optimizer alone.

        The graph beyond them is not walked, so it can serve another loss.
        """
        inputs = [param for param in self.optim.params if param.requires_grad]
        if not inputs:  # all of it is frozen, perhaps for a while
            return
        loss.backward(start, inputs=inputs)
        if all(param.grad is None for param in inputs):
            raise AlchemyError(
                f"the loss of {self.name!r} does not depend on its parameters",
                section=f"optim.{self.name}",
                hint="is something detached, or computed under no_grad, that it should go through?",
            )

    def log_update(self) -> None:
        last, optim = self.run.metrics.last, self.optim
        last(f"train/updates_{self.name}", self.updates)
        last(f"train/lr_{self.name}", optim.get_lr()[0])
        if optim.grad_norm is not None:
            last(f"train/grad_norm_{self.name}", optim.grad_norm)
