"""A minimal experiment, fitting a line, with models that reproduce known faults."""

import os
import signal
from typing import Any

import torch
from loguru import logger
from torch import nn

from alchemy import AlchemyModel, AlchemyTask, sym_tbl
from alchemy.pipeline import BeginStepPipeline, SchedPipeline

SEEN: list[Any] = []  # (epoch, ids of a batch) of the runs in this process
POINTS = [{"x": i / 4 - 1, "id": i} for i in range(8)]


def stack(batch):
    return {"x": torch.tensor([[row["x"]] for row in batch]), "id": [row["id"] for row in batch]}


class LineTask(AlchemyTask):
    def load_dataset(self, split, **kwargs):
        if "pipes" in kwargs:
            super().load_dataset(split, collate_fn=stack, **kwargs)
        else:
            self._datasets[split] = (POINTS, {"collate_fn": stack, **kwargs})


@AlchemyModel.register("Line")
class LineModel(AlchemyModel):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(1, 1)

    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        y = self.model(batch["x"])
        outputs = {"y": y}
        if needs_loss:
            loss = (y - 3 * batch["x"] - 0.5).pow(2).mean()
            outputs["loss"] = self.backward.backward(loss, requires_grad=requires_grad)
            outputs["count"] = len(y)
        return outputs


class Killed(LineModel):
    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)


class Broken(LineModel):
    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        torch.use_deterministic_algorithms(True)
        sym_tbl().set_global("left_over", self)
        raise ValueError("broken [/x] {here}")


class Talking(LineModel):
    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        logger.info("a line with [/x] and {} and {y} and 中文")
        return super().forward(batch, needs_loss, requires_grad)


@SchedPipeline.register()
class See(BeginStepPipeline):
    def __call__(self, batch, **kwargs):
        SEEN.append((sym_tbl().train_sched.cur_epoch, tuple(batch["id"])))
        return kwargs


def config(model="Line", *, folder=None, tag="line", seed=0, epochs=1, **sections):
    """Return a config as a plain mapping; with `folder`, the run writes a record there."""
    plugins = [{"type": "alchemy.plugins.BasicSetup"}]
    if folder is not None:
        plugins.append({"type": "alchemy.plugins.FileLogger", "log_dir": str(folder)})
    plugins.append({"type": "alchemy.plugins.Seeding", "seed": seed})
    cfg = {
        "tag": tag,
        "runner": "alchemy.runner.Trainer",
        "log_every": 1,
        "plugins": plugins,
        "task": {"type": "line_parts.LineTask", "datasets": {"train": {"batch_size": 2, "shuffle": True}}},
        "model": {"type": f"line_parts.{model}"},
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.1, "max_grad_norm": 1.0},
        "sched": {"type": "alchemy.sched.LineWarmup", "epochs": epochs, "num_warmup_steps": 1},
    }
    return {**cfg, **sections}
