"""A sequence tagger with a softmax or CRF decoder."""

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
class _HasRules(Protocol):
    """A task that defines which tags may follow each other, in the form that CRF expects."""

    def rules(self) -> dict[str, Any]: ...


@runtime_checkable
class _HasUnscored(Protocol):
    """A task with a tag for words that are not scored, or an empty string."""

    unscored: str


class _Net(nn.Module):
    """An encoder and a tag classifier; a CRF, if any, is part of the module so that it is trained."""

    def __init__(self, encoder: Encoder, classes: int, dropout: float, crf: CRF | None) -> None:
        super().__init__()
        self.encoder, self.dropout, self.crf = encoder, Dropout(dropout), crf
        self.out = nn.Linear(encoder.width, classes)

    def forward(self, rows: Rows, first_BT: Tensor, tags_BT: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the tag scores of words (padded on the right), the mask of real words, and the CRF loss per row."""
        front, places_BT = in_front(rows)
        encoded = self.encoder.read(front)
        words, order_BT = in_front(Rows(front.ids_BT, first_BT.gather(1, places_BT)))
        states_BWD = encoded.states_BTD.gather(1, order_BT[..., None].expand_as(encoded.states_BTD))
        scores_BWC = self.out(self.dropout(states_BWD))
        if tags_BT is None or self.crf is None:
            return scores_BWC, words.real_BT, None
        # a text without words has one position, without a tag
        tags_BW = tags_BT.gather(1, places_BT).gather(1, order_BT).clamp_min(0)
        return scores_BWC, words.real_BT, self.crf(scores_BWC, tags_BW, words.real_BT) * first_BT.any(1)


@AlchemyModel.register()
class Tagger(TextModel):
    """Predicts `tags`: the best tag of each word (`decoder = "softmax"`), or the best tag sequence (`"crf"`).

    The `words` field of a batch contains the word index of each token, or -1; each word is represented by its first
    token. The `label` field contains the tags. With `rules`, a CRF never predicts a sequence that the task's tagging
    scheme forbids. The CRF loss is averaged over texts, any other loss over words.
    """

    expected_task = "alchemy.tasks.Tagging"

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
            hint = 'remove [criterion], or set decoder = "softmax"'
            raise AlchemyError("a CRF defines its own loss, so [criterion] would not be used", hint=hint)
        if decoder == "crf" and isinstance(self.run.task, _HasUnscored) and self.run.task.unscored:
            hint = 'set decoder = "softmax"'
            raise AlchemyError("a CRF needs a tag for every word, but the task has unscored words", hint=hint)
        self.words, self.label = words, label
        tags = self.count_classes(classes)
        allowed = self.run.task.rules() if rules and isinstance(self.run.task, _HasRules) else {}
        chain = CRF(tags, **allowed) if decoder == "crf" else None
        self.model = _Net(self.build_encoder(encoder, by_token=True), tags, dropout, chain)
        self.criterion = self.build_criterion(CrossEntropy(ignore_index=IGNORED))

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        first_BT, tags_BT = _first_tokens(self.field(batch, self.words)), batch.get(self.label)
        # the CRF loss is computed here too: DDP only sees parameters that are used in its module's forward pass
        try:
            scores_BWC, real_BW, chained_B = self.model(self.rows(batch), first_BT, tags_BT)
        except (IndexError, RuntimeError) as error:
            if tags_BT is not None:
                check_target(error, tags_BT)
            raise
        outputs = {"scores": scores_BWC, "chain_loss": chained_B}
        if not self.module.training:  # decoding is not needed in training
            outputs["tags"] = self._decode(scores_BWC, real_BW, first_BT)
        return outputs

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        tags_BT, first_BT = self.field(batch, self.label), _first_tokens(self.field(batch, self.words))
        if outputs["chain_loss"] is not None:
            return outputs["chain_loss"].sum(), first_BT.any(1).sum()
        words_BW = in_front(Rows(tags_BT, first_BT & self.rows(batch).real_BT))[0]
        gold_BW = torch.where(words_BW.real_BT, words_BW.ids_BT, IGNORED)
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["scores"].mT, gold_BW)
        return found

    def _decode(self, scores_BWC: Tensor, real_BW: Tensor, first_BT: Tensor) -> list[list[int]]:
        chain = self.module.crf
        counts = first_BT.sum(1).tolist()  # a text without words still has one position
        if chain is not None:
            found: list[list[int]] = chain.decode(scores_BWC, real_BW)
        else:
            found = scores_BWC.argmax(-1).tolist()
        return [row[:count] for row, count in zip(found, counts)]


def _first_tokens(word_BT: Tensor) -> Tensor:
    """Return a mask of the first tokens of words.

    >>> _first_tokens(torch.tensor([[-1, 0, 0, 1, -1]])).int().tolist()
    [[0, 1, 0, 1, 0]]
    """
    before_BT = torch.cat((torch.full_like(word_BT[:, :1], -1), word_BT[:, :-1]), dim=1)
    return (word_BT >= 0) & (word_BT != before_BT)
