"""From the losses of a step to the one number that gradients are taken of."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from alchemy.errors import AlchemyError


def weighted_sum(losses: Tensor | Sequence[Any], weights: Any = None) -> Any:
    """The losses with their weights, added; an element may be a plain number."""
    rows = [losses] if isinstance(losses, int | float | Tensor) else list(losses)
    if weights is None:
        return sum(rows)
    factors = [weights] if isinstance(weights, int | float | Tensor) else list(weights)
    if len(factors) != len(rows):
        text = f"backward got {len(rows)} losses and {len(factors)} weights"
        raise AlchemyError(text, hint="give one weight to each loss")
    return sum(loss * weight for loss, weight in zip(rows, factors, strict=True))


def mean(total: Tensor, count: float | Tensor) -> Tensor:
    """`total / count`, and 0 where nothing was counted."""
    if isinstance(count, Tensor):
        return torch.where(count > 0, total / count, 0.0)
    if count == 1:
        return total
    if count <= 0:
        return torch.zeros_like(total)
    # wrapping a number takes longer than dividing by it, and most batches count the same
    return total / (_divisor(count) if total.is_cpu and total.dtype is torch.float32 else count)


@functools.lru_cache(maxsize=128)
def _divisor(count: float) -> Tensor:
    return torch.tensor(float(count))


class GradientSeed:
    """The gradient of a loss with respect to itself, where a backward pass begins; kept while it stays the same."""

    _kept: tuple[Any, Any] = (None, None)

    def like(self, loss: Tensor, value: float) -> Tensor:
        key = (value, loss.dtype, loss.device)
        if self._kept[0] != key:
            self._kept = (key, loss.new_full((), value))
        start: Tensor = self._kept[1]
        return start


def differentiable(loss: object) -> Tensor:
    """The loss as a scalar with a graph behind it, or an error that says what it is instead."""
    if not isinstance(loss, Tensor):
        problem, hint = f"the loss is a {type(loss).__name__}", "hand over the tensor itself, before item() or float()"
    elif loss.numel() != 1:
        problem = f"the loss has the shape {tuple(loss.shape)}"
        hint = "it must be one number: reduce it with sum() and give the count"
    elif not loss.requires_grad:
        problem = "the loss has no gradient"
        hint = "compute it from the model's outputs without detach(), item() or no_grad(), and leave something to train"
    else:
        return loss.reshape(())
    raise AlchemyError(f"{problem}: backward cannot train on it", section="model", hint=hint)


def by_name(losses: Tensor | Sequence[Any], names: Sequence[str] | None) -> Iterator[tuple[str, float]]:
    """Each loss with its name, for a reader; stops with an error at one that is not a finite number."""
    for i, loss in enumerate([losses] if isinstance(losses, Tensor) else losses):
        name = names[i] if names is not None and i < len(names) else f"unnamed{i}"
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        if not math.isfinite(value):
            raise AlchemyError(f"loss {name!r} is {value}", hint="look at its inputs, the learning rate and log(0)")
        yield name, value
