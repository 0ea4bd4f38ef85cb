"""Precision in complete runs: splitting batches when out of memory, and every option."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from alchemy.errors import RunFailed
from alchemy.runner import run_task
from tests.toy import Line, OldLine, config


class Tight(Line):
    """A line that has memory for `limit` samples."""

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        if len(batch["x"]) > self.limit and requires_grad:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(batch, needs_loss, requires_grad)


def test_a_run_with_halves_ends_where_one_without_does() -> None:
    results = []
    for limit in (4, 1):
        cfg = config(model={"type": "tests.test_precision_run.Tight", "limit": limit}, precision={"halve_on_oom": True})
        results.append(run_task(cfg, raise_errors=True).ret["loss"])
    assert results[0] == pytest.approx(results[1], rel=1e-4)


def test_means_are_not_halved() -> None:
    cfg = config(model={"type": "tests.test_precision_run.Means"}, precision={"halve_on_oom": True})
    with pytest.raises(RunFailed, match="a mean loss cannot be split; return a sum"):
        run_task(cfg, raise_errors=True)


class Means(OldLine):
    """An old-style line that has memory for two samples."""

    def forward(self, batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if len(batch["x"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(batch, *args, **kwargs)


def test_a_run_tells_the_batch_that_does_not_fit() -> None:
    cfg = config(model={"type": "tests.test_precision_run.Tight", "limit": 2})
    with pytest.raises(RunFailed, match=r"out of memory on a batch of \{x: tensor float32\[4, 1\]"):
        run_task(cfg, raise_errors=True)


@pytest.mark.parametrize("table", [{"dtype": "bf16"}, {"dtype": "fp16", "scale": 256.0}, {"recompute": ["Linear"]}])
def test_a_run_learns_with_every_switch(table: dict[str, Any]) -> None:
    assert run_task(config(precision=table), raise_errors=True).ret["loss"] < 0.2
