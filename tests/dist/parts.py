"""Parts whose gradient must not depend on the batch split: ragged texts, float64, three ways to count a loss."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import alchemy
from alchemy.model import AlchemyModel
from alchemy.nn.losses import build_loss
from alchemy.optim import SGD
from alchemy.pipeline import ItrDataPipeline, LstDataPipeline

IGNORED = -100
CLASSES = 4
WORDS = 11
# counted: samples; tags that are not ignored; the weights of these tags
LOSSES: dict[str, dict[str, Any]] = {
    "samples": {"targets": "label"},
    "tokens": {"targets": "tags"},
    "weights": {"targets": "tags", "weight": [0.2, 1.0, 3.0, 0.7]},
    # with parameters outside the module
    "learnt": {"targets": "tags", "type": "alchemy.nn.losses.Focal", "learnable": True},
}


class Texts(LstDataPipeline):
    """Texts of one to nine words, with a label and tags, many of them ignored, in some texts all."""

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
            label = int(draw(0, CLASSES, 1))
            self.samples.append({"words": draw(1, WORDS, length), "label": label, "tags": tags, "index": index})

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]


class TextStream(ItrDataPipeline):
    """The same texts as a stream, with a length only if requested."""

    def __init__(self, *, count: int = 13, has_length: bool = False) -> None:
        super().__init__()
        self.texts, self.has_length = Texts(count=count), has_length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.texts.samples)

    def __len__(self) -> int:
        if not self.has_length:
            raise TypeError("a stream without a length")
        return len(self.texts)


# a stream that no pipe splits, in batches of two texts
UNSPLIT: dict[str, Any] = {
    "pipes": [{"type": "tests.dist.parts.TextStream"}, {"type": "alchemy.pipeline.itr.Shuffle", "buffer_size": 5}],
    "batch_size": 2,
    "shuffle": False,
}


class Reader(nn.Module):
    """Score the classes at every word from the words so far: padding after a text has no effect."""

    def __init__(self, width: int = 3, dropout: float = 0.0, sparse: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0, sparse=sparse)
        self.out = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, CLASSES))

    def forward(self, words_BT: Tensor) -> Tensor:
        scores_BTC: Tensor = self.out(self.words(words_BT).cumsum(dim=1))
        return scores_BTC


class Model(AlchemyModel):
    """A `Reader` trained on the label of a text (the mean of its words' scores) or on the tags of its words.

    With `means`, it returns mean losses, as old models do: then each micro-batch has the same weight. With `sparse`,
    the gradient of the words is sparse. The training texts are written to the file `into`, one for each rank.
    """

    def __init__(
        self,
        *,
        into: str,
        targets: str = "tags",
        means: bool = False,
        dropout: float = 0.0,
        frozen: bool = False,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        self.model = Reader(dropout=dropout, sparse=sparse).double()
        self.model.words.requires_grad_(not frozen)
        self.seen, self.targets, self.means = file_of(into, "seen"), targets, means
        self.criterion = build_loss(self.criterion_cfg).double()

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        logits = self.model(batch["words"]).transpose(1, 2)
        if requires_grad and self.backward.real:
            append(self.seen, {"epoch": self.run.train_sched.cur_epoch, "texts": batch["index"].tolist()})
        if self.targets == "label":
            read_BT = batch["words"].ne(0)
            logits = (logits * read_BT.unsqueeze(1)).sum(dim=2) / read_BT.sum(dim=1, keepdim=True)
        loss_sum, count = self.criterion(logits, batch[self.targets])
        if self.means:
            return {"loss": self.backward.backward(loss_sum / max(count, 1), requires_grad=requires_grad)}
        loss = self.backward.backward(loss_sum, requires_grad=requires_grad, count=count)
        return {"logits": logits, "loss_sum": loss_sum.detach(), "count": count, "loss": loss}


class Recording(SGD):
    """Write the gradients of every update, as the optimizer sees them, to a file for each rank."""

    def __init__(self, *, into: str, lr: float = 0.1) -> None:
        super().__init__(lr=lr)
        self.path = file_of(into, "gradients")

    def step(self) -> None:
        named = self.run.model.named_parameters()
        append(self.path, {name: None if p.grad is None else p.grad.to_dense().flatten().tolist() for name, p in named})
        super().step()


def file_of(into: str | Path, what: str, rank: str = "") -> Path:
    """Return the file of a rank, by default of this process."""
    return Path(f"{into}.{what}.{rank or os.environ.get('RANK', '0')}")


def append(path: Path, row: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read(into: Path, what: str, rank: int = 0) -> list[Any]:
    """Read the file of a rank."""
    return [json.loads(line) for line in file_of(into, what, str(rank)).read_text().splitlines()]


def config(
    loss: str, into: Path, *, period: int = 1, means: bool = False, train: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Two epochs over 13 texts, 8 per update; `train` changes the table of the data, `changes` top-level tables."""
    criterion = dict(LOSSES[loss])
    data = {
        "pipes": [{"type": "tests.dist.parts.Texts"}],
        "collate_fn": {"type": "alchemy.data.collate.Pad", "values": {"tags": IGNORED}},
        "batch_size": 8,
    }
    return {
        "tag": "parts",
        "seed": 3,
        "log_every": 1,
        "runner": "alchemy.runner.Trainer",
        "plugins": [],
        "task": {
            "type": "alchemy.task.DefaultTask",
            "datasets": {"train": {**data, "shuffle": True, **(train or {})}, "dev": data},
        },
        "model": {
            "type": "tests.dist.parts.Model",
            "into": str(into),
            "targets": criterion.pop("targets"),
            "means": means,
        },
        "criterion": {"type": "alchemy.nn.losses.CrossEntropy", "ignore_index": IGNORED, **criterion},
        "backward": {"period": period},
        "optim": {"type": "tests.dist.parts.Recording", "into": str(into)},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 2},
        **changes,
    }


def gradients_of(loss: str, into: Path, **changes: Any) -> list[dict[str, list[float]]]:
    """Train in this process; return the gradients of every update by parameter."""
    alchemy.run([config(loss, into, **changes)], device=[-1], raise_errors=True)
    return read(into, "gradients")


def farthest(one: list[dict[str, list[float]]], other: list[dict[str, list[float]]]) -> float:
    """Return the largest difference between two runs with the same updates and parameters."""
    assert [list(row) for row in one] == [list(row) for row in other]
    pairs = [(row[name] or [], also[name] or []) for row, also in zip(one, other) for name in row]  # frozen: None
    return max(abs(a - b) for left, right in pairs for a, b in zip(left, right, strict=True))
