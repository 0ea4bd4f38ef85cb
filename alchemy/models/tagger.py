"""A tag for each word of a text."""

# B batch, T tokens, W words, C tags, D features

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.models.encoders import Encoder
from alchemy.models.text_model import TextModel
from alchemy.nn.crf import CRF
from alchemy.nn.dropout import Dropout
from alchemy.nn.losses import CrossEntropy, check_target
from alchemy.nn.sequences import Rows, in_front
from alchemy.pipeline.tokenizers import TokenizerSpec

IGNORED = -100


@runtime_checkable
class _Ruled(Protocol):
    """A task that says which tags may follow each other, as CRF takes it."""

    def rules(self) -> dict[str, Any]: ...


class _Net(nn.Module):
    """An encoder and scores of tags; where there is a chain of tags, the module holds it, so that it is trained."""

    def __init__(self, encoder: Encoder, classes: int, dropout: float, crf: CRF | None) -> None:
        super().__init__()
        self.encoder, self.dropout, self.crf = encoder, Dropout(dropout), crf
        self.out = nn.Linear(encoder.width, classes)

    def forward(self, rows: Rows, first_BT: Tensor, tags_BT: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The scores of the words, which stand in front; how many there are; and the loss of the chain of each row."""
        front, places_BT = in_front(rows)
        encoded = self.encoder.read(front)
        words, order_BT = in_front(Rows(front.ids_BT, first_BT.gather(1, places_BT)))
        states_BWD = encoded.states_BTD.gather(1, order_BT[..., None].expand_as(encoded.states_BTD))
        scores_BWC = self.out(self.dropout(states_BWD))
        if tags_BT is None or self.crf is None:
            return scores_BWC, words.real_BT, None
        # a text without words has one place, where no tag stands
        tags_BW = tags_BT.gather(1, places_BT).gather(1, order_BT).clamp_min(0)
        return scores_BWC, words.real_BT, self.crf(scores_BWC, tags_BW, words.real_BT) * first_BT.any(1)


@AlchemyModel.register()
class Tagger(TextModel):
    """`tags` of each text: the best of each word (`decoder = "softmax"`), or the best row of them (`"crf"`).

    The batch has `words`: which word each token belongs to, -1 for none; its first token speaks for a word. Tags come
    from the field `label`. With `rules` a chain finds no row that the scheme of the task forbids. The loss of a chain
    counts texts, any other words.
    """

    goes_with = "alchemy.tasks.Tagging"

    def __init__(
        self,
        *,
        encoder: dict[str, Any],
        decoder: Literal["softmax", "crf"] = "crf",
        rules: bool = True,
        classes: NonNegativeInt = 0,
        dropout: Fraction = 0.1,
        ids: str = "input_ids",
        words: str = "words",
        label: str = "targets",
        tokenizer: TokenizerSpec | None = None,
    ) -> None:
        super().__init__(ids=ids, tokenizer=tokenizer, reads=(words, label))
        if decoder == "crf" and self.criterion_cfg:
            hint = 'take out [criterion], or set decoder = "softmax"'
            raise AlchemyError("a chain of tags is its own loss, and [criterion] would not be used", hint=hint)
        self.words, self.label = words, label
        tags = self.classes_of(classes)
        allowed = self.run.task.rules() if rules and isinstance(self.run.task, _Ruled) else {}
        chain = CRF(tags, **allowed) if decoder == "crf" else None
        self.model = _Net(self.encoder_of(encoder, by_token=True), tags, dropout, chain)
        self.criterion = self.loss_for(CrossEntropy(ignore_index=IGNORED))

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        first_BT, tags_BT = _first_of(self.field(batch, self.words)), batch.get(self.label)
        # the loss of a chain is computed in here too: DDP sees only parameters that its module has used
        try:
            scores_BWC, real_BW, chained_B = self.model(self.rows(batch), first_BT, tags_BT)
        except (IndexError, RuntimeError) as error:
            if tags_BT is not None:
                check_target(error, tags_BT)
            raise
        outputs = {"scores": scores_BWC, "chain_loss": chained_B}
        if not self.module.training:  # the best row of tags is searched for, which training has no use for
            outputs["tags"] = self._tags(scores_BWC, real_BW, first_BT)
        return outputs

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        tags_BT, first_BT = self.field(batch, self.label), _first_of(self.field(batch, self.words))
        if outputs["chain_loss"] is not None:
            return outputs["chain_loss"].sum(), first_BT.any(1).sum()
        words_BW = in_front(Rows(tags_BT, first_BT & self.rows(batch).real_BT))[0]
        gold_BW = torch.where(words_BW.real_BT, words_BW.ids_BT, IGNORED)
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["scores"].mT, gold_BW)
        return found

    def _tags(self, scores_BWC: Tensor, real_BW: Tensor, first_BT: Tensor) -> list[list[int]]:
        chain = self.module.crf
        counts = first_BT.sum(1).tolist()  # a text without words has one place, for want of none
        if chain is not None:
            found: list[list[int]] = chain.decode(scores_BWC, real_BW)
        else:
            found = scores_BWC.argmax(-1).tolist()
        return [row[:count] for row, count in zip(found, counts)]


def _first_of(word_BT: Tensor) -> Tensor:
    """Which tokens are the first of a word.

    >>> _first_of(torch.tensor([[-1, 0, 0, 1, -1]])).int().tolist()
    [[0, 1, 0, 1, 0]]
    """
    before_BT = torch.cat((torch.full_like(word_BT[:, :1], -1), word_BT[:, :-1]), dim=1)
    return (word_BT >= 0) & (word_BT != before_BT)
