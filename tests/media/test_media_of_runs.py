"""Media in real runs: tasks and pipes log them, TensorBoard's own reader finds them, and resuming is exact."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from alchemy.config.load import prepare_cfg
from alchemy.context import Run
from alchemy.pipeline import EndStepPipeline
from alchemy.records.read_media import read_media
from alchemy.runner import run
from tests.toy import config

BOARD = {"type": "alchemy.plugins.TensorboardLogger", "graph": True}


class LogEverything(EndStepPipeline):
    """Logs one entry of each kind at every second update."""

    def __call__(self, outputs: Any = None, **kwargs: Any) -> dict[str, Any]:
        if self.run.update % 2 == 0:
            log_everything(self.run)
        return kwargs


def log_everything(run: Run) -> None:
    from matplotlib.figure import Figure

    value = float(next(iter(run.model.parameters())))
    run.log_image("shots/one", torch.full((3, 4, 4), 0.5))
    run.log_images("shots/grid", torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(run.update)))
    run.log_figure("shots/figure", Figure((1, 1)))
    run.log_histogram("spread", torch.tensor([value, 2 * value]))
    run.log_text("words", f"weight {value:.6f}")
    run.log_table("rows", ["weight"], [[value]])
    run.log_attention("attention", np.eye(2), ["a", "b"], ["a", "b"])
    run.log_confusion("confusion", ["x", "y"], [[run.update, 0], [0, 1]])
    run.log_embedding("points", torch.ones(3, 2), ["a", "b", "c"])


def train(cfg: dict[str, Any], folder: Path) -> Path:
    run(prepare_cfg(cfg), device=-1)
    return next(path.parent for path in folder.rglob("record.json"))


def everything(folder: Path, **changes: Any) -> dict[str, Any]:
    pipes = [{"type": "tests.media.test_media_of_runs.LogEverything"}]
    return config(folder, sched__pipes=pipes, sched__epochs=1, **changes)
