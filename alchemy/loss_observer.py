"""The loss passed to the updater, and the observer interface of `alchemy.verify`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from alchemy.nn.loss_reduction import mean

if TYPE_CHECKING:
    from alchemy.optim import AlchemyOptimizer

Block = contextlib.AbstractContextManager[Any]
_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


@dataclass(slots=True)
class Loss:
    """The summed loss of a micro-batch and its count, with the model outputs.

    If `is_mean` is set, the true count is unknown: `sum` is a mean and `count` is its weight.
    """

    sum: Tensor
    count: float | Tensor
    outputs: Mapping[str, Any] = field(default_factory=dict)
    is_mean: bool = False

    def merged(self) -> dict[str, Any]:
        """Return the outputs plus `loss_sum`, `count` and the mean `loss`, detached from the graph."""
        total = self.sum.detach()
        return {**self.outputs, "loss_sum": total, "count": self.count, "loss": mean(total, self.count)}


class Observer:
    """Base class for observers of updates; its methods do nothing. `alchemy.verify` defines subclasses."""

    def micro_batch(self, batch: object) -> Block:
        """Return a context manager around the forward and backward passes of a micro-batch."""
        return _NOTHING

    def loss(self, loss: Loss, optim: str) -> None:
        """Called with every loss before its backward pass; `optim` names one of several optimizers."""

    def backward(self) -> Block:
        """Return a context manager around a backward pass."""
        return _NOTHING

    def update(self, optim: AlchemyOptimizer) -> Block:
        """Return a context manager around an optimizer step, with gradients that are divided but not yet clipped."""
        return _NOTHING

    def schedule(self) -> None:
        """Called after an update, before the schedule advances."""
