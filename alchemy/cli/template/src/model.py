"""The network, and how a batch becomes a loss."""

from typing import Any

from torch import nn

from alchemy.model import AlchemyModel
from alchemy.nn.losses import build_loss


@AlchemyModel.register()
class PointClassifier(AlchemyModel):
    """Two hidden layers between a point and the scores of the classes."""

    def __init__(self, *, hidden: int = 64, num_classes: int = 3, model_path: str = "") -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(2, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, num_classes)
        )
        self.criterion = build_loss(self.criterion_cfg)
        if model_path:  # a checkpoint folder: set when a record is tested
            self.load(model_path)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {"logits": self.model(batch["point"])}
        if needs_loss:
            # a sum and its count: the backward handler divides once, however the batch was cut
            loss_sum, count = self.criterion(outputs["logits"], batch["label"])
            loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
            outputs |= {"loss_sum": loss_sum.detach(), "count": count, "loss": loss}
        return outputs
