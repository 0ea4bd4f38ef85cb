"""Train a tokenizer on the training texts of a task."""

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
    """A tokenizer class that can be trained on texts."""

    def train(self, lines: Iterable[str], **options: Any) -> Tokenizer: ...


def is_class(spec: object) -> bool:
    """Return whether a tokenizer is specified as a class to train; a folder with the same name takes precedence.

    >>> is_class("alchemy.text.Words"), is_class("bert-base"), is_class("models/bert.v1")
    (True, False, False)
    """
    return isinstance(spec, str) and is_import_path(spec) and not Path(spec).is_dir()


def learn_tokenizer(name: str, texts: Iterable[str], options: Mapping[str, Any], what: str = "") -> Tokenizer:
    """Train a tokenizer of the class `name` on texts; `options` are passed to its `train` method."""
    kind = Tokenizer.resolve_registered_module(name)
    if not isinstance(kind, _Learner):
        hint = "use a folder, or a table with its files"
        raise AlchemyError(f"{name} cannot be trained on texts", section="task.tokenizer", hint=hint)
    try:
        tokenizer = kind.train(texts, **options)
    except TypeError as error:
        if not options:
            raise
        text = f"{name.rpartition('.')[2]} cannot be trained with {', '.join(options)}: {error}"
        raise AlchemyError(text, section="task.learn", hint="see docs/tokenizers.md for its options") from error
    logger.info("learned {} from the training texts{}", tokenizer, f" of the {what}" if what else "")
    return tokenizer


def has_size_option(name: str) -> bool:
    """Return whether the `train` method of a tokenizer class accepts a `size`."""
    kind = Tokenizer.resolve_registered_module(name)
    return isinstance(kind, _Learner) and "size" in inspect.signature(kind.train).parameters


def check_vocabulary(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Raise if most tokens of the training texts are unknown to the tokenizer, since a model cannot learn from them.

    Other splits are not checked: a tokenizer trained on little text may not know most of their tokens.
    """
    ids = [token for text in texts for token in tokenizer.encode(text)]
    unknown = ids.count(tokenizer.unk) if tokenizer.unk is not None else 0
    if 2 * unknown > len(ids):
        raise AlchemyError(
            f"{unknown} of {len(ids)} tokens of the first texts are not in the vocabulary",
            where=str(tokenizer.path if isinstance(tokenizer, Folder) else tokenizer),
            hint="is it for a different language, or for lowercase texts only?",
        )
