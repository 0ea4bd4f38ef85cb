"""A model that is hard to capture: sparse outputs, modules that are not always called, hidden errors, and counters."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from tests.toy import Line


class Odd(Line):
    """A line whose module has odd parts."""

    def __init__(self) -> None:
        super().__init__()
        self.model = OddModule()


class OddModule(nn.Module):
    """Returns something sparse for positive inputs only, counts its calls, and handles the error of a part."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.sparse, self.broken = nn.Linear(1, 1), ToSparse(), Broken()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if not self.training and x[0, 0] > -0.9:
            self.sparse(x)
        with contextlib.suppress(ValueError):
            self.broken(x)
        return self.linear(x) + 0.001 * self.calls


class ToSparse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to_sparse()


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("broken")
