"""Load the tokenizers of pipes and save copies in the record."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary

from loguru import logger

from alchemy.constraints import NotAClass
from alchemy.context import Run, find_run
from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError, Refused
from alchemy.records.tokenizers import tokenizer_folder
from alchemy.registry import build
from alchemy.text import Tokenizer, load_tokenizer

TokenizerSpec = Annotated[str | Path | dict[str, Any] | Tokenizer, NotAClass()]  # a folder, or a table with a `type`


class _SavedTokenizer(NamedTuple):
    """The tokenizer of a field, and where it was first used."""

    digest: str
    origin: str
    error: type[AlchemyError] = AlchemyError  # raised if the tokenizer changes


_saved: WeakKeyDictionary[Run, dict[str, _SavedTokenizer]] = (
    WeakKeyDictionary()
)  # by field; includes runs without a record


def tokenizer_of(spec: TokenizerSpec) -> Tokenizer:
    """Return the tokenizer for a folder or a config table."""
    if isinstance(spec, Tokenizer):
        return spec
    if isinstance(spec, str | Path):
        return load_tokenizer(Path(spec).expanduser())
    tokenizer: Tokenizer = build(Tokenizer, spec, section="tokenizer")
    return tokenizer


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return the digest of a tokenizer, or "" if it has none. Resuming compares digests, since ids must not change."""
    with contextlib.suppress(NotImplementedError):  # a project's tokenizer without a digest
        return tokenizer.digest
    return ""


def keep_tokenizer(tokenizer: Tokenizer, field: str, origin: str = "") -> None:
    """Save a copy in the current run's record, so that the model's token ids can always be decoded.

    All splits of a run, and runs that resume it, must use the same tokenizer for a field. Error messages show `origin`.
    """
    run = find_run()
    if run is None:
        return
    digest, home = (
        tokenizer_digest(tokenizer),
        run.record_dir or run.resume_from,
    )  # only the main process has a record_dir
    if not digest:
        logger.warning("cannot save {} in the record: it does not define options() and contents()", title(tokenizer))
        return
    fields = _saved.setdefault(run, {})
    there = home is not None and tokenizer_folder(home, field).exists()
    if home is not None and there and field not in fields:  # saved by the run that is resumed
        folder = tokenizer_folder(home, field)
        fields[field] = _SavedTokenizer(load_tokenizer(folder).digest, str(folder), Refused)
    _check_same(fields.setdefault(field, _SavedTokenizer(digest, origin or repr(tokenizer))), digest, field, origin)
    if run.record_dir is not None and not there:
        tokenizer.save(tokenizer_folder(run.record_dir, field))


def _check_same(first: _SavedTokenizer, digest: str, field: str, origin: str) -> None:
    if first.digest != digest:
        raise first.error(
            f"{origin or 'a second tokenizer'} encodes {field!r} with different ids than {first.origin}: "
            "the same id would mean a different token",
            hint="use one tokenizer for both: build a corpus with --like CORPUS or --tokenizer FOLDER; "
            "to use two tokenizers, use two fields",
        )
