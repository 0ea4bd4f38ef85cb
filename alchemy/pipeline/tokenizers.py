"""The tokenizers of pipes: where a config says they are, and the copies that a record keeps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.context import sym_tbl
from alchemy.data.chain import title
from alchemy.records.tokenizers import tokenizer_folder
from alchemy.registry import build
from alchemy.text import Tokenizer, load_tokenizer


def tokenizer_of(spec: Any) -> Tokenizer:
    """The tokenizer that a config means: a folder, or a table with a `type`."""
    if isinstance(spec, Tokenizer):
        return spec
    if isinstance(spec, str | Path):
        return load_tokenizer(Path(spec).expanduser())
    tokenizer: Tokenizer = build(Tokenizer, spec, section="tokenizer")
    return tokenizer


def known_as(tokenizer: Tokenizer) -> str:
    """What a resume knows a tokenizer by: with another one the same weights would be given other ids."""
    with contextlib.suppress(NotImplementedError):  # a project's own, which cannot tell
        return tokenizer.digest
    return ""


def keep(tokenizer: Tokenizer, field: str) -> None:
    """Puts a copy into the record of the current run, with which ids of its model can be read for ever."""
    record = sym_tbl().record_dir
    if record is None:
        return
    folder = tokenizer_folder(record, field)
    try:
        if not folder.exists():
            tokenizer.save(folder)
        elif load_tokenizer(folder).digest != tokenizer.digest:
            text = "the tokenizer of {!r} is another than the one in {}: it may give other ids to the same text"
            logger.warning(text, field, folder)
    except NotImplementedError:
        logger.warning("{} cannot be saved in the record: it defines no options() and contents()", title(tokenizer))
