"""A text model that classifies the relation between marked entities."""

# B batch, T tokens, D features

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt
from alchemy.model import AlchemyModel
from alchemy.models.encoders import Encoder
from alchemy.models.heads import Head
from alchemy.models.text_model import TextModel
from alchemy.nn.dropout import Dropout
from alchemy.nn.losses import CrossEntropy
from alchemy.nn.sequences import Rows, in_front, mean_of
from alchemy.pipeline.tokenizers import TokenizerSpec


class _Net(nn.Module):
    """R-BERT (Wu and He 2019): the vector of the text and the mean of each entity, passed through separate layers."""

    def __init__(self, encoder: Encoder, head: Head, marks: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.text = nn.Sequential(Dropout(dropout), nn.Linear(head.width, encoder.width), nn.Tanh())
        # one layer for all entities, as in the paper: the position in the concatenation distinguishes them
        self.thing = nn.Sequential(nn.Tanh(), Dropout(dropout), nn.Linear(encoder.width, encoder.width), nn.Tanh())
        self.out = nn.Sequential(Dropout(dropout), nn.Linear((1 + marks) * encoder.width, classes))

    def forward(self, rows: Rows, *marks: Tensor) -> Tensor:
        front, places_BT = in_front(rows)
        encoded = self.encoder.read(front)
        things = [mean_of(encoded.states_BTD, mark_BT.bool().gather(1, places_BT)) for mark_BT in marks]
        scores_BC: Tensor = self.out(torch.cat([self.text(self.head(encoded)), *map(self.thing, things)], dim=-1))
        return scores_BC


@AlchemyModel.register()
class RelationClassifier(TextModel):
    """Computes relation `logits` from the text and the tokens of each entity; `marks` names the entity mask fields."""

    expected_task = "alchemy.tasks.Relation"

    def __init__(
        self,
        *,
        encoder: dict[str, Any],
        head: dict[str, Any] = {"type": "alchemy.models.heads.Pool"},
        marks: list[str] = ["e1_mask", "e2_mask"],
        classes: NonNegativeInt = 0,
        dropout: Fraction = 0.1,
        ids: str = "input_ids",
        label: str = "label_id",
        tokenizer: TokenizerSpec | None = None,
    ) -> None:
        super().__init__(ids=ids, tokenizer=tokenizer, reads=(*marks, label))
        self.label, self.marks = label, marks
        built = self.build_encoder(encoder, by_token=True)
        self.model = _Net(built, self.build_head(head, built), len(marks), self.count_classes(classes), dropout)
        self.criterion = self.build_criterion(CrossEntropy())

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"logits": self.model(self.rows(batch), *(self.field(batch, name) for name in self.marks))}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["logits"], self.field(batch, self.label))
        return found
