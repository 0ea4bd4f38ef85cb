"""Base class for text models: builds the encoder, head and loss, and reads the fields of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel, tensor_field
from alchemy.models.encoders import Encoder
from alchemy.models.heads import Head
from alchemy.models.windowing import Whole
from alchemy.nn.losses import Loss, build_loss
from alchemy.nn.sequences import Rows
from alchemy.pipeline.tokenizers import TokenizerSpec, tokenizer_of
from alchemy.registry import build
from alchemy.text import Tokenizer


@runtime_checkable
class _HasTokenizer(Protocol):
    """A task with a tokenizer."""

    tokenizer: Tokenizer


@runtime_checkable
class _HasReading(Protocol):
    """A task that defines whether long texts are read whole or in windows."""

    reading: Whole


@runtime_checkable
class _HasLabels(Protocol):
    """A task with a list of labels."""

    labels: Sequence[str]


class TextModel(AlchemyModel):
    """A model whose module has an `encoder`. The tokenizer and the classes come from the task unless they are set.

    A batch has an `ids` field, optionally a `mask` of real tokens (default: everything except padding) and optionally
    `segments`. With `trf_lr` in `[optim]`, the encoder uses that learning rate and everything else uses `lr`.
    """

    expected_task: ClassVar[str] = "a task from alchemy.tasks"

    def __init__(self, *, ids: str, tokenizer: TokenizerSpec | None, reads: Sequence[str] = ()) -> None:
        super().__init__()
        self.ids, self.reads = ids, (ids, *reads)  # in training
        task = self.run.task
        own = task.tokenizer if isinstance(task, _HasTokenizer) else None
        self.tokenizer: Tokenizer | None = own if tokenizer is None else tokenizer_of(tokenizer)

    # -- for constructors of subclasses
    def build_encoder(self, table: Mapping[str, Any], *, by_token: bool = False) -> Encoder:
        """Build the encoder and pass it the tokenizer if it accepts one; `by_token` requires a vector per token.

        The task determines whether the encoder reads whole texts or windows; windows are joined by token position.
        """
        given = {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        encoder: Encoder = build(Encoder, table, given=given, section="model.encoder")
        if isinstance(self.run.task, _HasReading):
            encoder.reading = self.run.task.reading
        if (by_token or encoder.reading.by_token) and not encoder.by_token:
            what = (
                f"{type(self).__name__} needs one vector per token, but {type(encoder).__name__} does not return them"
            )
            raise AlchemyError(what, section="model.encoder", hint="use alchemy.models.encoders.Recurrent")
        return encoder

    def build_head(self, table: Mapping[str, Any], encoder: Encoder) -> Head:
        head: Head = build(Head, table, given={"inputs": encoder.width}, section="model.head")
        return head

    def count_classes(self, classes: int) -> int:
        """Return `classes` if it is set, or else the number of labels of the task."""
        found = classes or (len(self.run.task.labels) if isinstance(self.run.task, _HasLabels) else 0)
        if not found:
            hint = "set classes = 2, or use a task with labels, such as those in alchemy.tasks"
            raise AlchemyError("the number of classes is unknown", section="model", hint=hint)
        return found

    def build_criterion(self, default: Loss) -> Loss:
        """Return the loss in the `[criterion]` table, or `default` if the config has no such table."""
        return build_loss(self.criterion_cfg) if self.criterion_cfg else default

    # -- in a step
    def rows(self, batch: Mapping[str, Any]) -> Rows:
        ids_BT: Tensor = self.field(batch, self.ids)
        longest = self.max_positions()
        if longest is not None and ids_BT.shape[1] > longest:
            hint = f"set max_length = {longest} or less in the encoding pipe, and `long` to a truncation strategy"
            text = f"a text has {ids_BT.shape[1]} tokens, but the encoder takes at most {longest}"
            raise AlchemyError(text, section="model.encoder", hint=hint)
        real_BT = batch.get("mask")
        pad = None if self.tokenizer is None else self.tokenizer.pad
        if real_BT is None:
            real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if pad is None else ids_BT != pad
        return Rows(ids_BT, real_BT.bool(), batch.get("segments"))

    field = staticmethod(tensor_field)

    # -- called by the framework
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
