"""Texts into classes, several classes, or a number."""

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
# what an untuned config trains: chosen by cross-validation, see "Defaults" in docs/text-tasks.md
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
class _OfKind(Protocol):
    """A task that says what it predicts: one class, several, or a number."""

    kind: str


class _Net(nn.Module):
    """An encoder, a head over it, and a score for each class."""

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
    """An encoder and a head: `logits` of classes, of labels each for itself (`kind = "multi"`), or a number.

    Without an `encoder` the model is a bag of tokens and pairs of tokens (`NGrams`, `SumMax`, a dropout of 0.6), which
    learns in a minute on one core. Over an `encoder`, `head` defaults to what that says of the whole text, and
    `dropout` to 0.1. Sizes come from the task, unless `classes` and `tokenizer` tell them. The loss is that of the
    kind, unless there is a table `[criterion]`.
    """

    goes_with = "alchemy.tasks.Classification"

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
        self.kind = kind or (self.run.task.kind if isinstance(self.run.task, _OfKind) else "single")
        self.label = label or TARGETS[self.kind]
        self.reads += (self.label,)
        bag = not encoder
        made = self.encoder_of(encoder or USUAL_ENCODER)
        self.classes = 1 if self.kind == "regression" else self.classes_of(classes)
        top = self.head_of(head or (USUAL_HEAD if bag else OVER_ENCODER), made)
        usual = USUAL_DROPOUT if bag else 0.1
        self.model = _Net(made, top, self.classes, usual if dropout is None else dropout)
        self.criterion = self.loss_for(LOSSES[self.kind]())

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        logits_BC = self.model(self.rows(batch))
        return {"logits": logits_BC[:, 0] if self.kind == "regression" else logits_BC}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["logits"], self.field(batch, self.label))
        return found
