"""Samples with invalid labels, and models that train on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from alchemy.model import AlchemyModel
from alchemy.nn.losses import CrossEntropy
from alchemy.null_objects import Updater
from alchemy.pipeline import EvalPipeline, LstDataPipeline
from alchemy.task import DefaultTask

HUGE = 10**400
LABELS: dict[str, list[Any]] = {
    "good": [0, 1, 2, 0, 1, 2, 0, 1],
    "ignored": [-100] * 8,
    "some ignored": [-100] * 7 + [1],  # a window without counted targets is valid
    "negative": [0, 1, 2, 0, 1, -1, 0, 1],
    "large": [0, 1, 2, 0, 1, 3, 0, 1],
    "names": ["a"] * 8,
    "none": [None] * 8,
    "booleans": [True, False] * 4,
}


class Rows(LstDataPipeline):
    """Eight samples, or none, from a file with one line each."""

    def __init__(self, *, labels: str = "good", count: int = 8) -> None:
        super().__init__()
        self.labels, self.count = labels, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((4,), float(index)), "label": LABELS[self.labels][index]}

    def where(self, index: int) -> str:
        return f"rows.txt:{index + 1}"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x)
        return scores


class OwnLoss(Net):
    """A module that computes the loss from its `labels`, as in transformers."""

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        logits = self.out(x)
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits, labels)}


class Custom(AlchemyModel):
    """A custom model with a loss of alchemy."""

    def __init__(self, *, width: int = 4) -> None:
        super().__init__()
        self.model, self.criterion = nn.Linear(width, 3), CrossEntropy()

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"logits": self.model(batch["x"])}

    def loss(self, outputs: Any, batch: Any) -> Any:
        return self.criterion(outputs["logits"], batch["label"])


class Silent(DefaultTask):
    """A task whose step returns no loss, so the count of targets is unknown."""

    def train_step(self, batch: Any, updater: Updater) -> dict[str, Any]:
        updater.accumulate(self.loss(batch))
        return {}


@EvalPipeline.register()
class Score(EvalPipeline):
    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        return {**kwargs, "perplexity": HUGE}


MODELS: dict[str, dict[str, Any]] = {
    "custom": {"model": {"type": f"{__name__}.Custom"}},
    **{
        kind: {"model": {"type": f"{__name__}.Net"}, "criterion": {"type": kind, "target": "label"}}
        for kind in ("alchemy.nn.losses.CrossEntropy", "alchemy.nn.losses.Focal", "torch.nn.CrossEntropyLoss")
    },
}


def config(labels: str = "good", *, model: str = "custom", train: int = 8, dev: int = 8, **task: Any) -> dict[str, Any]:
    def split(labels: str, count: int) -> dict[str, Any]:
        pipes = [{"type": f"{__name__}.Rows", "labels": labels, "count": count}]
        return {"pipes": pipes, "batch_size": 4, "collate_fn": "alchemy.data.collate.Pad"}

    return {
        "tag": "t",
        "seed": 1,
        "runner": "alchemy.runner.Trainer",
        "task": {
            "type": "alchemy.task.DefaultTask",
            "datasets": {"train": split(labels, train), "dev": split("good", dev)},
            **task,
        },
        **MODELS[model],
        "optim": {"type": "torch.optim.SGD", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 2},
    }
