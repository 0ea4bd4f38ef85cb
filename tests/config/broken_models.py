"""Models and data with one mistake each, for the table of wrong configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from alchemy.model import AlchemyModel
from alchemy.pipeline import DataPipeline, LstDataPipeline


@DataPipeline.register()
class Points(LstDataPipeline):
    """Points of three classes; `y` is the class index."""

    def __init__(self) -> None:
        super().__init__(None)
        self.rows = [{"x": torch.tensor([n, 1.0]), "y": n % 3} for n in range(8)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def asks_samples(samples: list[Any]) -> dict[str, Any]:
    return {"x": torch.stack([sample["points"] for sample in samples])}


class Net(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.out = nn.Linear(2, classes)

    def forward(self, x: Tensor) -> Any:
        return self.out(x)


class NoSuper(nn.Module):
    def __init__(self) -> None:
        self.out = nn.Linear(2, 3)


class OtherInput(Net):
    def forward(self, inputs: Tensor) -> Any:
        return self.out(inputs)


class OtherOutput(Net):
    def forward(self, x: Tensor) -> Any:
        return {"scores": self.out(x)}


class NoReturn(Net):
    def forward(self, x: Tensor) -> Any:
        self.out(x)


class Own(AlchemyModel):
    def __init__(self, *, classes: int = 3) -> None:
        super().__init__()
        self.model = nn.Linear(2, classes)

    def forward(self, batch: Any) -> Any:
        return {"logits": self.model(batch["x"])}

    def loss(self, outputs: Mapping[str, Any], batch: Any) -> Any:
        return nn.functional.cross_entropy(outputs["logits"], batch["y"], reduction="sum"), len(batch["y"])


class AsksBatch(Own):
    def forward(self, batch: Any) -> Any:
        return {"logits": self.model(batch["points"])}


class AsksOutputs(Own):
    def loss(self, outputs: Mapping[str, Any], batch: Any) -> Any:
        return nn.functional.cross_entropy(outputs["logit"], batch["y"], reduction="sum"), len(batch["y"])


class NoLoss(AlchemyModel):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(2, 3)

    def forward(self, batch: Any) -> Any:
        return {"logits": self.model(batch["x"])}


class ForTexts(nn.Module):
    """A module for alchemy.tasks.Classification with a given number of classes."""

    def __init__(self, classes: int = 2, name: str = "logits") -> None:
        super().__init__()
        self.out, self.name = nn.Embedding(100, classes), name

    def forward(self, input_ids: Tensor) -> Any:
        return {self.name: self.out(input_ids).mean(1)}
