"""The tokenizers of pipes: where a config says they are, and the copies that a record keeps."""

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


class _Kept(NamedTuple):
    """The tokenizer of a field, and where it was first met."""

    digest: str
    origin: str
    error: type[AlchemyError] = AlchemyError  # what another one in its place is


_kept: WeakKeyDictionary[Run, dict[str, _Kept]] = WeakKeyDictionary()  # by field; also of runs without a record


def tokenizer_of(spec: TokenizerSpec) -> Tokenizer:
    """The tokenizer that a config means."""
    if isinstance(spec, Tokenizer):
        return spec
    if isinstance(spec, str | Path):
        return load_tokenizer(Path(spec).expanduser())
    tokenizer: Tokenizer = build(Tokenizer, spec, section="tokenizer")
    return tokenizer


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """What a resume knows a tokenizer by: with another one the same weights would be given other ids."""
    with contextlib.suppress(NotImplementedError):  # a project's own, which cannot tell
        return tokenizer.digest
    return ""


def keep_tokenizer(tokenizer: Tokenizer, field: str, origin: str = "") -> None:
    """Puts a copy into the record of the current run, with which ids of its model can be read for ever.

    All splits of a run, and what goes on with it, must have the same one under a field. `origin` names it in an error.
    """
    run = find_run()
    if run is None:
        return
    digest, home = (
        tokenizer_digest(tokenizer),
        run.record_dir or run.resume_from,
    )  # only the first process has the former
    if not digest:
        logger.warning("{} cannot be saved in the record: it defines no options() and contents()", title(tokenizer))
        return
    fields = _kept.setdefault(run, {})
    there = home is not None and tokenizer_folder(home, field).exists()
    if home is not None and there and field not in fields:  # of the run that is resumed
        folder = tokenizer_folder(home, field)
        fields[field] = _Kept(load_tokenizer(folder).digest, str(folder), Refused)
    _check_same(fields.setdefault(field, _Kept(digest, origin or repr(tokenizer))), digest, field, origin)
    if run.record_dir is not None and not there:
        tokenizer.save(tokenizer_folder(run.record_dir, field))


def _check_same(first: _Kept, digest: str, field: str, origin: str) -> None:
    if first.digest != digest:
        raise first.error(
            f"{origin or 'a second tokenizer'} gives {field!r} other ids than {first.origin}: "
            "the same number would mean another word",
            hint="use one tokenizer for both: a corpus is built with --like CORPUS, or --tokenizer FOLDER; "
            "what needs two has two fields",
        )
