"""Small networks with an optimizer and random gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from alchemy.context import Run
from alchemy.model import AlchemyModel
from alchemy.optim import build_optimizer


class Wrapper(AlchemyModel):
    """Wrap any module as a model."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.model = module


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


@contextmanager
def optimizing(table: dict[str, Any], module: nn.Module | None = None, model: type[Wrapper] = Wrapper) -> Iterator[Any]:
    with Run({"optim": table}) as run:
        run.model = model(net() if module is None else module)
        run.optim = build_optimizer(run)
        yield run


def give_gradients(module: nn.Module, scale: float = 1.0) -> None:
    torch.manual_seed(1)
    for param in module.parameters():
        param.grad = torch.randn_like(param) * scale


def names_of(module: nn.Module, params: list[nn.Parameter]) -> set[str]:
    known = {id(param): name for name, param in module.named_parameters()}
    return {known[id(param)] for param in params}


def all_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(all_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(all_plain(item) for item in value)
    return type(value) in (int, float, bool, str, type(None), torch.Tensor)
