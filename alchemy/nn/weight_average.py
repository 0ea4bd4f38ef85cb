"""A running average of the trained weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from alchemy.errors import AlchemyError

Named = Iterable[tuple[str, nn.Parameter]]


class Shadow:
    """A copy of the trained parameters in at least float32; frozen parameters are added once they are unfrozen."""

    def __init__(self, named: Named) -> None:
        self.params = {name: param for name, param in named if param.is_floating_point()}
        self.weights: dict[str, Tensor] = {}
        self._frozen = dict(self.params)
        self._pairs: list[tuple[Tensor, nn.Parameter]] = []
        self._applied = False

    def is_of(self, named: Named) -> bool:
        """Return whether these are the averaged parameters."""
        now = {name: param for name, param in named if param.is_floating_point()}
        return now.keys() == self.params.keys() and all(now[name] is param for name, param in self.params.items())

    @torch.no_grad()
    def lerp(self, share: float) -> None:
        """Move the average toward the current weights by the fraction `share`."""
        if self._pairs:
            weights = [weight for weight, _ in self._pairs]
            torch._foreach_lerp_(weights, [_as(p, weight.dtype) for weight, p in self._pairs], share)
        thawed = {name: param for name, param in self._frozen.items() if param.requires_grad}
        for name, param in thawed.items():
            self._follow(name, param.detach())

    def _follow(self, name: str, weight: Tensor) -> None:
        param = self._frozen.pop(name)
        dtype = torch.promote_types(param.dtype, torch.float32)
        self.weights[name] = torch.empty_like(param, dtype=dtype, requires_grad=False).copy_(weight)
        self._pairs.append((self.weights[name], param))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averages as parameters within the block; the trained values are restored afterwards."""
        if self._applied:
            yield
            return
        params = [param for _, param in self._pairs]
        held = [param.detach().clone() for param in params]
        self._applied = True
        try:
            _copy([weight for weight, _ in self._pairs], params)
            yield
        finally:
            _copy(held, params)
            self._applied = False

    def state(self) -> dict[str, Tensor]:
        """Return the averages by parameter name."""
        return dict(self.weights)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in weights.items():
            param = self.params.get(name)
            if param is None or param.shape != weight.shape:
                has = "no such parameter" if param is None else f"shape {list(param.shape)}"
                text = f"the saved average of {name!r} has shape {list(weight.shape)}, but the model has {has}"
                raise AlchemyError(text)
            if name in self.weights:
                self.weights[name].copy_(weight)
            else:
                self._follow(name, weight)


def _as(param: Tensor, dtype: torch.dtype) -> Tensor:
    return param if param.dtype == dtype else param.to(dtype)


@torch.no_grad()
def _copy(values: list[Tensor], params: list[nn.Parameter]) -> None:
    for value, param in zip(values, params, strict=True):
        param.copy_(value)
