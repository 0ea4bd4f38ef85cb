"""What the models of texts share: an encoder, the rows of a batch, and the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.models.encoders import Encoder
from alchemy.models.heads import Head
from alchemy.models.windowing import Whole
from alchemy.nn.losses import Loss, build_loss
from alchemy.nn.sequences import Rows
from alchemy.pipeline.tokenizers import TokenizerSpec, tokenizer_of
from alchemy.registry import build
from alchemy.text import Tokenizer


@runtime_checkable
class _Tokenizing(Protocol):
    """A task that says how its texts become ids."""

    tokenizer: Tokenizer


@runtime_checkable
class _Reading(Protocol):
    """A task that says whether long texts are read at once, or in windows."""

    reading: Whole


@runtime_checkable
class _Labelling(Protocol):
    """A task that knows its labels."""

    labels: Sequence[str]


class TextModel(AlchemyModel):
    """A model whose module has an `encoder`. Tokenizer and classes are those of the task, unless they are told.

    A batch has the field `ids`, a `mask` of what is real (else what is no padding is), and where the texts have them
    `segments`. With `trf_lr` in `[optim]` the encoder has this learning rate, and all else `lr`.
    """

    goes_with: ClassVar[str] = "a task of alchemy.tasks"

    def __init__(self, *, ids: str, tokenizer: TokenizerSpec | None, reads: Sequence[str] = ()) -> None:
        super().__init__()
        self.ids, self.reads = ids, (ids, *reads)  # in training
        task = self.run.task
        own = task.tokenizer if isinstance(task, _Tokenizing) else None
        self.tokenizer: Tokenizer | None = own if tokenizer is None else tokenizer_of(tokenizer)

    # -- for the constructor of a model
    def encoder_of(self, table: Mapping[str, Any], *, by_token: bool = False) -> Encoder:
        """The encoder; it is handed the tokenizer, if it takes one. `by_token` asks for a vector of each token.

        It reads as the task says: at once, or in windows, which are put together by the places of tokens.
        """
        given = {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        encoder: Encoder = build(Encoder, table, given=given, section="model.encoder")
        if isinstance(self.run.task, _Reading):
            encoder.reading = self.run.task.reading
        if (by_token or encoder.reading.by_token) and not encoder.by_token:
            what = f"{type(self).__name__} needs a vector of each token, which {type(encoder).__name__} does not give"
            raise AlchemyError(what, section="model.encoder", hint="alchemy.models.encoders.Recurrent does")
        return encoder

    def head_of(self, table: Mapping[str, Any], encoder: Encoder) -> Head:
        head: Head = build(Head, table, given={"inputs": encoder.width}, section="model.head")
        return head

    def classes_of(self, told: int) -> int:
        """How many classes there are: as told, else as many as the task has labels."""
        found = told or (len(self.run.task.labels) if isinstance(self.run.task, _Labelling) else 0)
        if not found:
            hint = "give classes = 2, or a task that knows its labels, as those of alchemy.tasks do"
            raise AlchemyError("the model does not know how many classes there are", section="model", hint=hint)
        return found

    def loss_for(self, usual: Loss) -> Loss:
        """The loss of `[criterion]`, and without that table the usual one."""
        return build_loss(self.criterion_cfg) if self.criterion_cfg else usual

    # -- in a step
    def rows(self, batch: Mapping[str, Any]) -> Rows:
        ids_BT: Tensor = self.field(batch, self.ids)
        longest = self.max_positions()
        if longest is not None and ids_BT.shape[1] > longest:
            hint = f"set max_length = {longest} (or less) where texts are encoded, and `long` to what is cut"
            text = f"a text has {ids_BT.shape[1]} tokens, and the encoder takes {longest}"
            raise AlchemyError(text, section="model.encoder", hint=hint)
        real_BT = batch.get("mask")
        pad = None if self.tokenizer is None else self.tokenizer.pad
        if real_BT is None:
            real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if pad is None else ids_BT != pad
        return Rows(ids_BT, real_BT.bool(), batch.get("segments"))

    def field(self, batch: Mapping[str, Any], name: str) -> Tensor:
        """A field of the batch that must be there as numbers."""
        found = batch.get(name)
        if not isinstance(found, Tensor):
            hint = f"the batch has {', '.join(map(str, batch))}"
            raise AlchemyError(f"the model reads {name!r}, which the batch does not have as numbers", hint=hint)
        return found

    # -- for others
    def max_positions(self) -> int | None:
        encoder: Encoder = self.module.encoder
        return encoder.reading.longest(encoder.longest)

    def optim_params(self, **table: Any) -> Any:
        if table.get("trf_lr") is None:
            return super().optim_params(**table)
        encoder = list(self.module.encoder.parameters())
        inner = set(map(id, encoder))
        others = [param for param in self.module.parameters() if id(param) not in inner]
        return [{"params": encoder, "lr": table["trf_lr"]}, {"params": others}]
