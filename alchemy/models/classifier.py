"""A text model for classification, multi-label classification and regression."""

# B batch, C classes

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt
from alchemy.model import AlchemyModel
from alchemy.models.encoders import Encoder
from alchemy.models.heads import Head
from alchemy.models.text_model import TextModel
from alchemy.nn.dropout import Dropout
from alchemy.nn.losses import BCE, MSE, CrossEntropy, Loss
from alchemy.nn.sequences import Rows, in_front
from alchemy.pipeline.tokenizers import TokenizerSpec

LOSSES: dict[str, type[Loss]] = {"single": CrossEntropy, "multi": BCE, "regression": MSE}
# default model, chosen by cross-validation; see "Defaults" in docs/text-tasks.md
USUAL_ENCODER = {
    "type": "alchemy.models.fasttext.NGrams",
    "dim": 32,
    "ngrams": [1, 2],
    "buckets": 524_288,
    "dropout": 0.3,
    "ends": True,
    "sparse": True,
}
USUAL_HEAD, USUAL_DROPOUT = {"type": "alchemy.models.heads.SumMax"}, 0.6
OVER_ENCODER = {"type": "alchemy.models.heads.Pool"}
TARGETS = {"single": "label_id", "multi": "label_hot", "regression": "label"}


@runtime_checkable
class _HasKind(Protocol):
    """A task that predicts one class, several classes or a number."""

    kind: str


class _Net(nn.Module):
    """An encoder, a head and a linear output layer with one logit per class."""

    def __init__(self, encoder: Encoder, head: Head, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, Dropout(dropout)
        self.out = nn.Linear(head.width, classes)

    def forward(self, rows: Rows) -> Tensor:
        front, _ = in_front(rows)
        scores_BC: Tensor = self.out(self.dropout(self.head(self.encoder.read(front))))
        return scores_BC


@AlchemyModel.register()
class TextClassifier(TextModel):
    """An encoder and a head that return class `logits`, independent label logits (`kind = "multi"`), or a number.

    Without an `encoder`, the model is a bag of unigrams and bigrams (`NGrams`, `SumMax`, dropout 0.6) that trains in
    a minute on one core. With an `encoder`, `head` defaults to the encoder's own pooling and `dropout` to 0.1.
    The vocabulary and the number of classes come from the task unless `tokenizer` and `classes` are set. The loss
    depends on `kind` unless the config has a `[criterion]` table.
    """

    expected_task = "alchemy.tasks.Classification"

    def __init__(
        self,
        *,
        encoder: dict[str, Any] | None = None,
        head: dict[str, Any] | None = None,
        kind: Literal["", "single", "multi", "regression"] = "",
        classes: NonNegativeInt = 0,
        dropout: Fraction | None = None,
        ids: str = "input_ids",
        label: str = "",
        tokenizer: TokenizerSpec | None = None,
    ) -> None:
        super().__init__(ids=ids, tokenizer=tokenizer)
        self.kind = kind or (self.run.task.kind if isinstance(self.run.task, _HasKind) else "single")
        self.label = label or TARGETS[self.kind]
        self.reads += (self.label,)
        bag = not encoder
        built = self.build_encoder(encoder or USUAL_ENCODER)
        self.classes = 1 if self.kind == "regression" else self.count_classes(classes)
        top = self.build_head(head or (USUAL_HEAD if bag else OVER_ENCODER), built)
        usual = USUAL_DROPOUT if bag else 0.1
        self.model = _Net(built, top, self.classes, usual if dropout is None else dropout)
        self.criterion = self.build_criterion(LOSSES[self.kind]())

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        logits_BC = self.model(self.rows(batch))
        return {"logits": logits_BC[:, 0] if self.kind == "regression" else logits_BC}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["logits"], self.field(batch, self.label))
        return found
