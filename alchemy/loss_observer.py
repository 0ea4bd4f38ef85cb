"""What a model hands to the updater, and who may watch what becomes of it."""

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
    """The loss of a micro-batch as a sum and what it counts, with the outputs that it was computed from.

    `is_mean` says that the true count is unknown: `sum` is a mean, and `count` a weight.
    """

    sum: Tensor
    count: float | Tensor
    outputs: Mapping[str, Any] = field(default_factory=dict)
    is_mean: bool = False

    def merged(self) -> dict[str, Any]:
        """The outputs with `loss_sum`, `count` and the mean `loss`, all without a graph."""
        total = self.sum.detach()
        return {**self.outputs, "loss_sum": total, "count": self.count, "loss": mean(total, self.count)}


class Observer:
    """Sees updates from the inside; this one ignores them, `alchemy.verify` has others."""

    def micro_batch(self, batch: object) -> Block:
        """Around forward and backward of a micro-batch."""
        return _NOTHING

    def loss(self, loss: Loss, optim: str) -> None:
        """Called with every loss before its gradients are computed; `optim` names its optimizer, one of several."""

    def backward(self) -> Block:
        """Around a backward pass."""
        return _NOTHING

    def update(self, optim: AlchemyOptimizer) -> Block:
        """Around the step of an optimizer, whose gradients are divided but not clipped yet."""
        return _NOTHING

    def schedule(self) -> None:
        """Called after an update, before the schedule moves."""
