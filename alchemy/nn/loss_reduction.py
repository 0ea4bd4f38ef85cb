"""Reduce the losses of a step to a scalar for the backward pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from alchemy.errors import AlchemyError


def weighted_sum(losses: Tensor | Sequence[Any], weights: Any = None) -> Any:
    """Return the weighted sum of the losses; an element may be a plain number."""
    rows = [losses] if isinstance(losses, int | float | Tensor) else list(losses)
    if weights is None:
        return sum(rows)
    factors = [weights] if isinstance(weights, int | float | Tensor) else list(weights)
    if len(factors) != len(rows):
        text = f"backward got {len(rows)} losses and {len(factors)} weights"
        raise AlchemyError(text, hint="pass one weight per loss")
    return sum(loss * weight for loss, weight in zip(rows, factors, strict=True))


def mean(total: Tensor, count: float | Tensor) -> Tensor:
    """Return `total / count`, or 0 if the count is 0."""
    if isinstance(count, Tensor):
        return torch.where(count > 0, total / count, 0.0)
    if count == 1:
        return total
    if count <= 0:
        return torch.zeros_like(total)
    # wrapping a number in a tensor is slower than dividing by it, and most batches have the same count
    return total / (_divisor(count) if total.is_cpu and total.dtype is torch.float32 else count)


@functools.lru_cache(maxsize=128)
def _divisor(count: float) -> Tensor:
    return torch.tensor(float(count))


class GradientSeed:
    """The initial gradient of a backward pass, cached until it changes."""

    _kept: tuple[Any, Any] = (None, None)

    def like(self, loss: Tensor, value: float) -> Tensor:
        key = (value, loss.dtype, loss.device)
        if self._kept[0] != key:
            self._kept = (key, loss.new_full((), value))
        start: Tensor = self._kept[1]
        return start


def differentiable(loss: object) -> Tensor:
    """Return the loss as a differentiable scalar; raise an error if it is not one."""
    if not isinstance(loss, Tensor):
        problem, hint = f"the loss is a {type(loss).__name__}", "return the tensor itself, before item() or float()"
    elif loss.numel() != 1:
        problem = f"the loss has shape {tuple(loss.shape)}"
        hint = "it must be a scalar: reduce it with sum() and return the count"
    elif not loss.requires_grad:
        problem = "the loss has no gradient"
        hint = "compute it from the model's outputs without detach(), item() or no_grad(); do not freeze everything"
    else:
        return loss.reshape(())
    raise AlchemyError(f"{problem}: backward cannot train on it", section="model", hint=hint)


def by_name(losses: Tensor | Sequence[Any], names: Sequence[str] | None) -> Iterator[tuple[str, float]]:
    """Yield each loss with its name; raise an error for a loss that is not finite."""
    for i, loss in enumerate([losses] if isinstance(losses, Tensor) else losses):
        name = names[i] if names is not None and i < len(names) else f"unnamed{i}"
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        if not math.isfinite(value):
            raise AlchemyError(f"loss {name!r} is {value}", hint="check its inputs, the learning rate and log(0)")
        yield name, value
