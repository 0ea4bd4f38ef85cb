"""Parts for the tests of `verify`: a model that passes all checks, and others that each fail one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alchemy import AlchemyModel
from alchemy.data.collate import Pad
from alchemy.nn.losses import CrossEntropy
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline

WORDS, CLASSES = 7, 3


def sentence(index: int) -> dict[str, Tensor]:
    numbers = torch.Generator().manual_seed(index)
    length = 2 + index % 4
    words = torch.randint(1, WORDS, (length,), generator=numbers)
    return {"words": words, "tags": words % CLASSES, "weight": torch.rand(length, generator=numbers)}


@DataPipeline.register()
class Sentences(LstDataPipeline):
    """Sentences of two to five words, each word with a tag."""

    def __init__(self, *, count: int = 10) -> None:
        super().__init__()
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return sentence(index)


@DataPipeline.register()
class Gathered(Sentences):
    """The same, with a custom collate function that gets only numbers."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return list(indices)

    def lengths(self) -> dict[str, Any]:
        return {"words": np.array([len(self[index]["words"]) for index in range(self.count)])}

    def collate(self, indices: list[int]) -> Any:
        return Pad(values={"tags": -100})([self[index] for index in indices])


@DataPipeline.register()
class Spoken(ItrDataPipeline):
    """The same as a stream without a length; with `size`, in batches of equal sentences."""

    def __init__(self, *, count: int = 10, size: int = 0) -> None:
        super().__init__()
        self.count, self.size = count, size

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            row = sentence(index)
            yield {name: value.expand(self.size, -1) for name, value in row.items()} if self.size else row


class Reader(nn.Module):
    """Several LSTM layers with dropout between them, which an old version could not reproduce."""

    def __init__(self, norm: bool = False, sparse: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 4, padding_idx=0, sparse=sparse)
        self.lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.norm = nn.BatchNorm1d(4) if norm else nn.Identity()
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(4, CLASSES))

    def forward(self, words_BT: Tensor) -> Tensor:
        read_BTD, _ = self.lstm(self.words(words_BT))
        scores_BTC: Tensor = self.out(self.norm(read_BTD.transpose(1, 2)).transpose(1, 2))
        return scores_BTC


@AlchemyModel.register()
class Tagger(AlchemyModel):
    """Tag words; `breaks` names the property that it violates, from update `after` on."""

    def __init__(self, *, breaks: str = "", after: int = 0, sparse: bool = False) -> None:
        super().__init__()
        self.model, self.breaks, self.after = Reader(norm=breaks == "norm", sparse=sparse), breaks, after
        self.criterion = CrossEntropy(ignore_index=-100)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        logits_BCT = self.model(batch["words"]).transpose(1, 2)
        if self.breaks == "single":
            logits_BCT = logits_BCT + self.model.out[1].bias @ torch.zeros(CLASSES, dtype=torch.float32)
        if not needs_loss:
            return {"logits": logits_BCT}
        loss_sum, count = self.criterion(logits_BCT, batch["tags"])
        if self.breaks == "unseeded" and self.run.update >= self.after:
            loss_sum = loss_sum * (1 + int.from_bytes(os.urandom(4)) / 2**32)
        if self.breaks == "divided":
            loss_sum = loss_sum / len(batch["words"])
        if self.breaks == "means":
            loss = self.backward.backward(loss_sum / count, requires_grad=requires_grad)
            return {"logits": logits_BCT, "loss": loss}
        if self.breaks == "nan" and requires_grad and self.run.update == self.after:
            loss_sum = self.spoilt(loss_sum)
        if self.breaks == "sqrt" and requires_grad and self.run.update == self.after:
            loss_sum = loss_sum + torch.sqrt((loss_sum - loss_sum.detach()) * 0).sum()
        if self.breaks == "raises" and requires_grad and self.run.update == self.after:
            raise IndexError("index out of range in self")
        loss = self.backward.backward(loss_sum, requires_grad=requires_grad, count=count)
        return {"logits": logits_BCT, "loss_sum": loss_sum.detach(), "count": count, "loss": loss}

    def spoilt(self, loss: Tensor) -> Tensor:
        return loss + torch.log(-loss)  # the line that a replay must name


def config(log_dir: str = "", **model: Any) -> dict[str, Any]:
    """Two epochs of three updates."""
    plugins = [{"type": "alchemy.plugins.FileLogger", "log_dir": log_dir}] if log_dir else []
    data = {
        "pipes": [{"type": "promises.Sentences"}],
        "collate_fn": {"type": "alchemy.data.collate.Pad", "values": {"tags": -100}},
        "batch_size": 4,
    }
    return {
        "tag": "promises",
        "seed": 7,
        "log_every": 1,
        "runner": "alchemy.runner.Trainer",
        "plugins": plugins,
        "task": {"type": "alchemy.task.DefaultTask", "datasets": {"train": {**data, "shuffle": True}, "dev": data}},
        "model": {"type": "promises.Tagger", **model},
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.01, "max_grad_norm": 1.0},
        "sched": {"type": "alchemy.sched.LineWarmup", "epochs": 2, "num_training_steps": 6, "num_warmup_steps": 2},
    }
