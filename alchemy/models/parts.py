"""What the models of texts share: where they find tokenizer and classes, and how a batch becomes rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.models.encoders import Encoder
from alchemy.nn.rows import Rows
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.registry import build
from alchemy.text import Tokenizer


def find_tokenizer(run: Run, spec: Any) -> Tokenizer | None:
    """The tokenizer that a model was told, else that of the task; None where neither has one."""
    return tokenizer_of(spec) if spec is not None else getattr(run.task, "tokenizer", None)


def build_encoder(table: Mapping[str, Any], tokenizer: Tokenizer | None) -> Encoder:
    """The encoder of `[model]`; it is handed the tokenizer, if it takes one."""
    given = {} if tokenizer is None else {"tokenizer": tokenizer}
    encoder: Encoder = build(Encoder, table, given=given, section="model.encoder")
    return encoder


def find_classes(run: Run, classes: int) -> int:
    """How many classes there are: as told, else as many as the task has labels."""
    found = classes or len(getattr(run.task, "labels", ()))
    if not found:
        hint = "give classes = 2, or a task that knows its labels, as those of alchemy.tasks do"
        raise AlchemyError("the model does not know how many classes there are", section="model", hint=hint)
    return found


def rows_in(batch: Mapping[str, Any], ids: str, encoder: Encoder, pad: int | None) -> Rows:
    """The rows of a batch: `ids`, the mask of what is real, and the segments where the batch has them.

    Without a mask what is no padding is real.
    """
    if ids not in batch:
        hint = f"the batch has {', '.join(map(str, batch))}"
        raise AlchemyError(f"the model reads {ids!r}, which the batch does not have", section="model", hint=hint)
    ids_BT: Tensor = batch[ids]
    if encoder.longest is not None and ids_BT.shape[1] > encoder.longest:
        hint = f"set max_length = {encoder.longest} (or less) where texts are encoded, and say what is cut"
        text = f"a text has {ids_BT.shape[1]} tokens, and the encoder takes {encoder.longest}"
        raise AlchemyError(text, section="model.encoder", hint=hint)
    real_BT = batch.get("mask")
    if real_BT is None:
        real_BT = torch.ones_like(ids_BT, dtype=torch.bool) if pad is None else ids_BT != pad
    return Rows(ids_BT, real_BT.bool(), batch.get("segments"))
