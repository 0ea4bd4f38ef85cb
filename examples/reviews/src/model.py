"""The two models as alchemy trains them: how a batch of reviews becomes scores and a loss."""

from typing import Any

from alchemy.model import AlchemyModel
from alchemy.nn.losses import build_loss
from src import nets


class Sentiment(AlchemyModel):
    """What both models do with a batch; each of them brings its network."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.model = net
        self.criterion = build_loss(self.criterion_cfg)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {"logits": self.model(batch["chars"])}
        if needs_loss:
            # a sum and what it counts: the backward handler divides once, however the batch was cut
            loss_sum, count = self.criterion(outputs["logits"], batch["label"])
            loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
            outputs |= {"loss_sum": loss_sum.detach(), "count": count, "loss": loss}
        return outputs


@AlchemyModel.register()
class FastText(Sentiment):
    """Hashed n-grams of characters, averaged; see `src.nets.FastText`."""

    def __init__(
        self,
        *,
        buckets: int = 65536,
        dim: int = 32,
        hidden: int = 64,
        ngrams: list[int] | None = None,
        dropout: float = 0.5,
        gram_dropout: float = 0.5,
    ) -> None:
        net = nets.FastText(
            buckets=buckets,
            dim=dim,
            hidden=hidden,
            ngrams=ngrams or [1, 2, 3],
            dropout=dropout,
            gram_dropout=gram_dropout,
        )
        super().__init__(net)


@AlchemyModel.register()
class TextCNN(Sentiment):
    """Filters over neighbouring characters; see `src.nets.TextCNN`."""

    def __init__(
        self,
        *,
        buckets: int = 16384,
        dim: int = 64,
        filters: int = 64,
        sizes: list[int] | None = None,
        dropout: float = 0.5,
        char_dropout: float = 0.1,
    ) -> None:
        net = nets.TextCNN(
            buckets=buckets,
            dim=dim,
            filters=filters,
            sizes=sizes or [2, 3],
            dropout=dropout,
            char_dropout=char_dropout,
        )
        super().__init__(net)
