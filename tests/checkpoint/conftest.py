"""Shared by the tests of checkpoints: the log, and a small training run with a nontrivial state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from alchemy.checkpoint.keeper import Checkpoints
from alchemy.checkpoint.manifest import Where


class Training:
    """A line being fitted: a minimal run."""

    def __init__(self, state: Path, **policy: Any) -> None:
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optim = torch.optim.AdamW(self.module.parameters())
        self.keeper = Checkpoints(state, **{"every": 2, **policy})
        self.keeper.parts = {"model": self, "optim": self.optim}
        self.update = 0

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.module.load_state_dict(state)

    @property
    def where(self) -> Where:
        return Where(self.update, 0, self.update)

    def step(self, score: float | None = None, mid_window: bool = False) -> None:
        """Do an update; with a score, evaluate after it."""
        self.optim.zero_grad()
        self.module(torch.randn(5, 3)).square().mean().backward()
        self.optim.step()
        self.update += 1
        if score is not None:
            self.keeper.after_evaluation("dev", {"f1": score}, self.where, mid_window)
        self.keeper.after_update(self.where)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()
        self.keeper.close()

    def values(self) -> dict[str, Tensor]:
        """Return every tensor that a run must restore."""
        values = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        for index, row in self.optim.state_dict()["state"].items():
            values |= {f"{index}.{name}": tensor.clone() for name, tensor in row.items()}
        return values


@pytest.fixture
def train(tmp_path: Path) -> Any:
    def begin(**policy: Any) -> Training:
        return Training(tmp_path / "state", **policy)

    return begin
