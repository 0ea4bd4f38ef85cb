"""Tokenizers that a task learns from its training texts."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from loguru import logger

from alchemy.constraints import is_import_path
from alchemy.errors import AlchemyError
from alchemy.text import Folder, Tokenizer


@runtime_checkable
class _Learner(Protocol):
    """A kind of tokenizer that can learn from texts."""

    def train(self, lines: Iterable[str], **options: Any) -> Tokenizer: ...


def is_class(spec: object) -> bool:
    """Whether a tokenizer is given as a class that learns it; a folder of that name takes precedence.

    >>> is_class("alchemy.text.Words"), is_class("bert-base"), is_class("models/bert.v1")
    (True, False, False)
    """
    return isinstance(spec, str) and is_import_path(spec) and not Path(spec).is_dir()


def learn_tokenizer(name: str, texts: Iterable[str], options: Mapping[str, Any], what: str = "") -> Tokenizer:
    """The tokenizer of the class `name`, learnt from texts with what its `train` takes."""
    kind = Tokenizer.resolve_registered_module(name)
    if not isinstance(kind, _Learner):
        hint = "give a folder, or a table with its files"
        raise AlchemyError(f"{name} cannot learn from texts", section="task.tokenizer", hint=hint)
    try:
        learnt = kind.train(texts, **options)
    except TypeError as error:
        if not options:
            raise
        text = f"{name.rpartition('.')[2]} does not learn with {', '.join(options)}: {error}"
        raise AlchemyError(text, section="task.learn", hint="docs/tokenizers.md tells what it takes") from error
    logger.info("{} was learnt from the training texts{}", learnt, f" of the {what}" if what else "")
    return learnt


def learns_a_size(name: str) -> bool:
    """Whether the `train` of a class of tokenizers takes a `size`."""
    kind = Tokenizer.resolve_registered_module(name)
    return isinstance(kind, _Learner) and "size" in inspect.signature(kind.train).parameters


def check_vocabulary(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Refuse a tokenizer that does not know most of the training texts: nothing could be learnt from them.

    Other splits are not checked: a tokenizer that was learnt from few texts rightly knows little of them.
    """
    ids = [token for text in texts for token in tokenizer.encode(text)]
    unknown = ids.count(tokenizer.unk) if tokenizer.unk is not None else 0
    if 2 * unknown > len(ids):
        raise AlchemyError(
            f"{unknown} of {len(ids)} tokens of the first texts are not in the vocabulary",
            where=str(tokenizer.path if isinstance(tokenizer, Folder) else tokenizer),
            hint="is it of another language, or lower-case where the texts are not?",
        )
