"""Texts into classes, several classes, or a number."""

# B batch, C classes

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.models.encoders import Encoder
from alchemy.models.heads import Head
from alchemy.models.parts import build_encoder, find_classes, find_tokenizer, rows_in
from alchemy.nn.losses import BCE, MSE, CrossEntropy, Loss, build_loss
from alchemy.nn.rows import Rows, in_front
from alchemy.registry import build

LOSSES: dict[str, type[Loss]] = {"single": CrossEntropy, "multi": BCE, "regression": MSE}
TARGETS = {"single": "label_id", "multi": "label_hot", "regression": "label"}


class Net(nn.Module):
    """An encoder, a head over it, and a score for each class."""

    def __init__(self, encoder: Encoder, head: Head, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, nn.Dropout(dropout)
        self.out = nn.Linear(head.width, classes)

    def forward(self, rows: Rows) -> Tensor:
        front, _ = in_front(rows)
        scores_BC: Tensor = self.out(self.dropout(self.head(self.encoder(front))))
        return scores_BC


@AlchemyModel.register()
class TextClassifier(AlchemyModel):
    """An encoder and a head: `logits` of classes, of labels each for itself (`kind = "multi"`), or a number.

    `head` is by default what the encoder says of the whole text. Sizes come from the task, unless `classes` and
    `tokenizer` tell them. The loss is that of the kind, unless there is a table `[criterion]`.
    """

    def __init__(
        self,
        *,
        encoder: dict[str, Any],
        head: dict[str, Any] = {"type": "alchemy.models.heads.Pool"},
        kind: Literal["", "single", "multi", "regression"] = "",
        classes: int = 0,
        dropout: float = 0.1,
        ids: str = "input_ids",
        label: str = "",
        tokenizer: Any = None,
    ) -> None:
        super().__init__()
        self.kind = kind or getattr(self.run.task, "kind", "single")
        if self.kind not in LOSSES:
            raise AlchemyError(f"kind must be 'single', 'multi' or 'regression', not {kind!r}", section="model")
        self.ids, self.label = ids, label or TARGETS[self.kind]
        own = find_tokenizer(self.run, tokenizer)
        self.pad = None if own is None else own.pad
        made = build_encoder(encoder, own)
        top: Head = build(Head, head, given={"inputs": made.width}, section="model.head")
        self.classes = 1 if self.kind == "regression" else find_classes(self.run, classes)
        self.model = Net(made, top, self.classes, dropout)
        self.criterion = build_loss(self.criterion_cfg) if self.criterion_cfg else LOSSES[self.kind]()

    def max_positions(self) -> int | None:
        longest: int | None = self.module.encoder.longest
        return longest

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> MutableMapping[str, Any]:
        logits_BC = self.model(rows_in(batch, self.ids, self.module.encoder, self.pad))
        if self.kind == "regression":
            logits_BC = logits_BC[:, 0]
        if not needs_loss:
            return {"logits": logits_BC}
        return {"logits": logits_BC, **losses(self, logits_BC, target_of(batch, self.label), requires_grad)}


def losses(model: Any, logits: Tensor, target: Tensor, requires_grad: bool) -> dict[str, Any]:
    """What a model returns of its loss: the sum and its count, which the backward handler divides by."""
    loss_sum, count = model.criterion(logits, target)
    loss = model.backward.backward(loss_sum, requires_grad=requires_grad, count=count)
    return {"loss_sum": loss_sum.detach(), "count": count, "loss": loss}


def target_of(batch: Any, name: str) -> Tensor:
    if not isinstance(batch.get(name), torch.Tensor):
        hint = f"the batch has {', '.join(map(str, batch))}; data without labels can only be predicted"
        raise AlchemyError(f"the model learns {name!r}, which the batch does not have as numbers", hint=hint)
    target: Tensor = batch[name]
    return target
