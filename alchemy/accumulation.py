"""Track the micro-batches accumulated since the last update of an optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.optim import AlchemyOptimizer


class AccumulationWindow:
    """The accumulation window of one optimizer; `name` selects one of several optimizers."""

    def __init__(self, run: Run, name: str = "") -> None:
        self.run, self.name = run, name
        self.updates = 0
        self.fresh = True  # whether no loss has been added yet, so existing gradients are from before training
        self.finite: Tensor | None = None  # the flag from the last update, still on the device
        self.clear()

    def clear(self) -> None:
        self.steps = 0
        self.count: float | Tensor = 0
        self.flag: float | Tensor = 0.0  # the losses times zero: NaN if any of them is not finite
        self.divisor: float = 0  # the count the gradients have already been divided by; 0 if not divided
        self.touched = False  # whether the current micro-batch has produced a loss

    @property
    def optim(self) -> AlchemyOptimizer:
        optim: Any = self.run.optim
        return optim[self.name] if self.name else optim

    @property
    def position(self) -> tuple[int, int, float]:
        return self.updates, self.steps, float(self.count)

    def begin(self) -> None:
        """Clear gradients that were computed before training."""
        if self.fresh:
            self.optim.zero_grad()
            self.fresh = False

    def undo_division(self) -> None:
        """Undo the division before another loss is added to the update, because only gradients of sums can be added."""
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
        """Backpropagate a loss, scaled by `start`, into the parameters of a single named optimizer.

        The rest of the graph is not freed, so another loss can still use it.
        """
        inputs = [param for param in self.optim.params if param.requires_grad]
        if not inputs:  # all parameters are frozen, perhaps temporarily
            return
        loss.backward(start, inputs=inputs)
        if all(param.grad is None for param in inputs):
            raise AlchemyError(
                f"the loss of {self.name!r} does not depend on its parameters",
                section=f"optim.{self.name}",
                hint="check whether part of the graph is detached or computed under no_grad",
            )

    def log_update(self) -> None:
        last, optim = self.run.metrics.last, self.optim
        last(f"train/updates_{self.name}", self.updates)
        last(f"train/lr_{self.name}", optim.get_lr()[0])
        if optim.grad_norm is not None:
            last(f"train/grad_norm_{self.name}", optim.grad_norm)
