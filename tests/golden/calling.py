"""A line whose `forward` calls the backward handler with a sum and its count, as projects of late 2026 do.

It stays in this style even if the models in `tests/toy.py` change, because it must reproduce their traces.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from alchemy.model import AlchemyModel


class Line(AlchemyModel):
    def __init__(self, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(dropout))

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {"y": self.model(batch["x"])}
        if needs_loss:
            loss_sum, count = (outputs["y"] - batch["y"]).square().sum(), len(batch["y"])
            outputs["loss"] = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
            outputs |= {"loss_sum": loss_sum.detach(), "count": count}
        return outputs
