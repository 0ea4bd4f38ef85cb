"""Parts for the tests of the deep check: each has an option to fail in one way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from alchemy import AlchemyModel
from alchemy.pipeline import DataPipeline, EvalPipeline, LstDataPipeline


@DataPipeline.register()
class Numbers(LstDataPipeline):
    def __init__(self, *, datapipe: list[int], wrong: str = "") -> None:
        super().__init__(datapipe)
        if wrong == "unpicklable":
            self.split = lambda text: text
        self.tensors = wrong == "tensors"

    def __len__(self) -> int:
        return len(self.datapipe)

    def __getitem__(self, index: int) -> Any:
        x = np.full(8, self.datapipe[index], dtype=np.float32)
        return {"x": torch.from_numpy(x) if self.tensors else x, "y": index % 2}


@AlchemyModel.register()
class Net(AlchemyModel):
    def __init__(self, *, hidden: int = 16, wrong: str = "") -> None:
        super().__init__()
        if wrong == "constructor":
            raise ValueError("no such vocabulary")
        self.model = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self.wrong = wrong

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        if self.wrong == "forward":
            raise IndexError("index out of range in self")
        logits = self.model(batch["x"])
        if not needs_loss:
            return {"logits": logits}
        loss = nn.functional.cross_entropy(logits, batch["y"], reduction="sum")
        if self.wrong == "nan":
            loss = loss * float("nan")
        mean = self.backward.backward(loss, requires_grad=requires_grad, count=len(logits))
        return {"logits": logits, "loss": mean, "loss_sum": loss.detach(), "count": len(logits)}


@AlchemyModel.register()
class Old(Net):
    """Built bare; reads its own table."""

    def __init__(self) -> None:
        super().__init__(hidden=self.table()["hidden"])

    def table(self) -> Any:
        from alchemy import sym_tbl

        return sym_tbl().cfg["model"]


@EvalPipeline.register()
class Count(EvalPipeline):
    def __init__(self, *, wrong: bool = False) -> None:
        super().__init__()
        self.wrong = wrong

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.wrong:
            raise ZeroDivisionError("division by zero")
        return {**kwargs, "score": 1.0}
