# ruff: noqa
"""The smallest task and model: a line through points."""

import torch
from torch import nn

from alchemy import AlchemyModel, AlchemyTask

datapipe = [{"x": i / 8 - 1, "y": 3 * (i / 8 - 1) + 0.5} for i in range(16)]


def collate_fn(batch):
    return {key: torch.tensor([[row[key]] for row in batch]) for key in ("x", "y")}


class MyTask(AlchemyTask):
    def load_dataset(self, split: str, **kwargs):
        ...
        self._datasets[split] = (datapipe, {"collate_fn": collate_fn, **kwargs})


@AlchemyModel.register()
class Line(AlchemyModel):
    def __init__(self):
        super().__init__()
        self._model = nn.Linear(1, 1)

    def optim_params(self, **kwargs):
        return self.model.parameters()

    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        outputs = {"y": self.model(batch["x"])}
        if needs_loss:
            loss = ((outputs["y"] - batch["y"]) ** 2).mean()
            outputs["loss"] = self.backward.backward(loss, None, requires_grad)
        return outputs
