"""Parts whose gradient must not depend on how a batch is cut: ragged texts, float64, three ways to count a loss."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import alchemy
from alchemy.model import AlchemyModel
from alchemy.nn.losses import build_loss
from alchemy.optim import SGD
from alchemy.pipeline import LstDataPipeline

IGNORED = -100
CLASSES = 4
WORDS = 11
# what is counted: samples; tags that are not ignored; the weights of these tags
LOSSES: dict[str, dict[str, Any]] = {
    "samples": {"targets": "label"},
    "tokens": {"targets": "tags"},
    "weights": {"targets": "tags", "weight": [0.2, 1.0, 3.0, 0.7]},
}


class Texts(LstDataPipeline):
    """Texts of one to nine words, each with a label and with tags, many of them to be ignored, in some texts all."""

    def __init__(self, *, count: int = 13) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(count)

        def draw(low: int, high: int, size: int) -> Tensor:
            return torch.randint(low, high, (size,), generator=numbers)

        self.samples = []
        for index in range(count):
            length = int(draw(1, 10, 1))
            tags = draw(0, CLASSES, length).masked_fill(draw(0, 3, length) == 0, IGNORED)
            if index % 5 == 0:
                tags.fill_(IGNORED)
            self.samples.append({"words": draw(1, WORDS, length), "label": int(draw(0, CLASSES, 1)), "tags": tags})

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]


class Reader(nn.Module):
    """Scores the classes at every word, from the words so far: padding behind a text changes nothing."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.out = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, CLASSES))

    def forward(self, words_BT: Tensor) -> Tensor:
        scores_BTC: Tensor = self.out(self.words(words_BT).cumsum(dim=1))
        return scores_BTC


class Model(AlchemyModel):
    """A `Reader`, trained on the label of a text (the mean of its words' scores) or on the tags of its words.

    With `means` it hands over mean losses, as old models do: then each micro-batch weighs the same.
    """

    def __init__(self, *, targets: str = "tags", means: bool = False) -> None:
        super().__init__()
        self.model = Reader().double()
        self.targets, self.means = targets, means
        self.criterion = build_loss(self.criterion_cfg)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        logits = self.model(batch["words"]).transpose(1, 2)
        if self.targets == "label":
            read_BT = batch["words"].ne(0)
            logits = (logits * read_BT.unsqueeze(1)).sum(dim=2) / read_BT.sum(dim=1, keepdim=True)
        loss_sum, count = self.criterion(logits, batch[self.targets])
        if self.means:
            return {"loss": self.backward.backward(loss_sum / max(count, 1), requires_grad=requires_grad)}
        loss = self.backward.backward(loss_sum, requires_grad=requires_grad, count=count)
        return {"logits": logits, "loss_sum": loss_sum.detach(), "count": count, "loss": loss}


class Recording(SGD):
    """Writes the gradients of every update, as the optimiser sees them, to a file for each rank."""

    def __init__(self, *, into: str, lr: float = 0.1) -> None:
        super().__init__(lr=lr)
        self.path = Path(f"{into}.{os.environ.get('RANK', '0')}")

    def step(self) -> None:
        named = self.run.model.named_parameters()
        row = {name: None if param.grad is None else param.grad.flatten().tolist() for name, param in named}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        super().step()


def config(
    loss: str, path: Path, *, batch_size: int = 8, period: int = 1, means: bool = False, **changes: Any
) -> dict[str, Any]:
    """Two epochs over 13 texts; `changes` replace top-level tables."""
    options = dict(LOSSES[loss])
    data = {
        "pipes": [{"type": "tests.dist.parts.Texts"}],
        "collate_fn": {"type": "alchemy.data.collate.Pad", "values": {"tags": IGNORED}},
        "batch_size": batch_size,
    }
    return {
        "tag": "parts",
        "seed": 3,
        "log_every": 1,
        "runner": "alchemy.runner.Trainer",
        "plugins": [],
        "task": {"type": "alchemy.task.DefaultTask", "datasets": {"train": {**data, "shuffle": True}}},
        "model": {"type": "tests.dist.parts.Model", "targets": options.pop("targets"), "means": means},
        "criterion": {"type": "alchemy.nn.losses.CrossEntropy", "ignore_index": IGNORED, **options},
        "backward": {"period": period},
        "optim": {"type": "tests.dist.parts.Recording", "into": str(path)},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 2},
        **changes,
    }


def gradients_of(loss: str, path: Path, **cut: Any) -> list[dict[str, list[float]]]:
    """The gradients of every update of a training in this process, by parameter."""
    alchemy.run([config(loss, path, **cut)], device=[-1], raise_errors=True)
    return read(path)


def read(path: Path, rank: int = 0) -> list[dict[str, list[float]]]:
    """What `Recording` has written on a rank."""
    return [json.loads(line) for line in Path(f"{path}.{rank}").read_text().splitlines()]


def farthest(one: list[dict[str, list[float]]], other: list[dict[str, list[float]]]) -> float:
    """The largest difference between two trainings, over all updates and parameters; they have the same of both."""
    assert [list(row) for row in one] == [list(row) for row in other]
    pairs = [(row[name], also[name]) for row, also in zip(one, other) for name in row]
    return max(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True))
