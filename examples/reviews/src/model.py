"""The two models: compute scores and loss for a batch of reviews."""

from typing import Any

from torch import nn

from alchemy.model import AlchemyModel
from alchemy.nn.losses import build_loss
from src import nets


class Sentiment(AlchemyModel):
    """Base class of both models; subclasses provide the networks."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.model = nets.Ensemble(members)
        self.criterion = build_loss(self.criterion_cfg)

    def forward(self, batch: Any) -> dict[str, Any]:
        scores_MBC = self.model(batch["chars"])
        return {"logits": scores_MBC.mean(dim=0), "scores": scores_MBC}

    def loss(self, outputs: Any, batch: Any) -> Any:
        scores_MBC = outputs["scores"]
        # each network is trained independently of the others
        labels_MB = batch["label"].expand(len(scores_MBC), -1)
        return self.criterion(scores_MBC.flatten(0, 1), labels_MB.flatten())


@AlchemyModel.register()
class FastText(Sentiment):
    """Averaged embeddings of hashed character n-grams; see `src.nets.FastText`."""

    def __init__(
        self,
        *,
        members: int = 1,
        buckets: int = 262144,
        dim: int = 32,
        hidden: int = 64,
        ngrams: list[int] | None = None,
        dropout: float = 0.5,
        gram_dropout: float = 0.5,
    ) -> None:
        options: dict[str, Any] = {"buckets": buckets, "dim": dim, "hidden": hidden, "ngrams": ngrams or [1, 2]}
        options |= {"dropout": dropout, "gram_dropout": gram_dropout}
        super().__init__([nets.FastText(**options) for _ in range(members)])


@AlchemyModel.register()
class TextCNN(Sentiment):
    """Convolutions over characters; see `src.nets.TextCNN`."""

    def __init__(
        self,
        *,
        members: int = 1,
        buckets: int = 16384,
        dim: int = 64,
        filters: int = 64,
        sizes: list[int] | None = None,
        dropout: float = 0.5,
        char_dropout: float = 0.1,
    ) -> None:
        options: dict[str, Any] = {"buckets": buckets, "dim": dim, "filters": filters, "sizes": sizes or [2, 3]}
        options |= {"dropout": dropout, "char_dropout": char_dropout}
        super().__init__([nets.TextCNN(**options) for _ in range(members)])
