"""Locate the file copies stored in a record, and point a config to them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alchemy.config.tree import Document, Table
from alchemy.errors import AlchemyError
from alchemy.launch.project_imports import describe_changes
from alchemy.records.labels import labels_file
from alchemy.records.status import try_read_info
from alchemy.records.symlinks import BACKUP, MAX_LISTED, refuse_links
from alchemy.records.tokenizers import tokenizer_folder
from alchemy.registry import parameters, resolve

TASK_LABELS = "task"  # file name of the task's labels; no field has this name


def encoder_folder(record: str | Path, path: str | Path) -> Path:
    """Return the folder in which a record stores the architecture of a pretrained encoder.

    >>> encoder_folder("records/x", "models/bert-tiny/").as_posix()
    'records/x/encoder/bert-tiny'
    """
    return Path(record) / "encoder" / quote(os.path.basename(os.path.abspath(os.path.expanduser(path))), safe="")


def has_best(record: Path) -> bool:
    return any((record / folder / "best").exists() for folder in ("checkpt", "state"))


def best_checkpoint(record: Path, name: str = "best") -> Path:
    """Return the folder of the weights named `name`, whether they were saved by a pipe or are a checkpoint."""
    path = next((path for path in (record / "checkpt" / name, record / "state" / name) if path.exists()), None)
    if path is None:
        kept = sorted({entry.name for folder in ("checkpt", "state") for entry in (record / folder).glob("[!.]*")})
        offer = f"choose one with --checkpoint: {', '.join(kept)}"
        hint = offer if kept else "did the run end before its first save?"
        raise AlchemyError(f"{record} has no checkpoint {name!r}", hint=hint)
    return path


def config_of(record: Path) -> Path:
    """Return the config file of a record."""
    config = refuse_links(record) / "cfg.toml"
    if not config.is_file():
        raise AlchemyError(f"{record} has no cfg.toml", hint="was it run with backup_cfg = false in FileLogger?")
    return config


def find_code(record: Path, user_dir: str) -> str:
    """Return the package that contains the parts of a project: `user_dir`, or its copy in a record if it is missing."""
    copy = record / BACKUP / os.path.basename(os.path.abspath(user_dir))
    if os.path.isdir(user_dir) or not copy.is_dir():
        return user_dir
    refuse_links(record / BACKUP)
    return str(copy)


def warn_of_other_code(record: Path, user_dir: str, option: str = "--user-dir ") -> str:
    """Return a warning if modules in `user_dir` differ from those that the run of a record imported, or an empty text.

    It says with which `option` the copy in the record is used instead.
    """
    package = os.path.basename(os.path.abspath(user_dir))
    hashes = try_read_info(record).get("code", {})
    changed = describe_changes({name: hashes[name] for name in hashes if name.startswith(f"{package}/")}, user_dir)
    if not changed:
        return ""
    more = f" and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
    copy = record / BACKUP / package
    usable = copy.is_dir() and os.path.realpath(copy) != os.path.realpath(user_dir)
    hint = f"; to use the code of the run: {option}{shlex.quote(str(copy))}" if usable else ""
    return f"since the run: {', '.join(changed[:MAX_LISTED])}{more}{hint}"


def use_local_copies(document: Document, record: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Point a config to the copies in a record, except for keys in `overrides`; return the tokenizer fields changed."""
    _use_own_weights(document, record)
    overridden = {text.partition("=")[0].strip().rpartition(".")[2] for text in overrides}
    if "labels" not in overridden:
        use_own_labels(document, record)
    _use_own_sides(document, record, overridden)
    return [] if "tokenizer" in overridden else use_own_tokenizers(document, record)


def use_own_tokenizers(
    document: Document, record: Path, same: Callable[[Any, Path], bool] = lambda named, own: False
) -> list[str]:
    """Point the pipes, the task and the model of a config to the tokenizers in a record.

    The folders named in the config may have been deleted or changed since. Folders that are still the `same`
    as their copies are kept. Returns the fields that the tokenizers produce.
    """
    changed: list[str] = []
    # pipes name the field that they produce, while models name the field that they read
    for section, key in (("task", "to"), ("model", "ids")):
        for table in _tables(document.get(section)):
            field = str(table.get(key, "input_ids"))
            folder, named = tokenizer_folder(record, field), table.get("tokenizer")
            if named is not None and folder.is_dir() and not same(named, folder):
                table["tokenizer"] = str(folder)
                changed += [field] if field not in changed else []
    return changed


def _use_own_sides(document: Document, record: Path, overridden: Container[str] = ()) -> None:
    """Point a task on sentence pairs to the tokenizers in a record, so that it does not have to read its corpora."""
    task = document.get("task")
    folders = {f"{side}_tokenizer": tokenizer_folder(record, side) for side in ("source", "target")}
    own = {key: folder for key, folder in folders.items() if folder.is_dir() and key not in overridden}
    if not own or not isinstance(task, Table):
        return
    taken, _ = parameters(resolve(str(task.get("type"))))
    for key, folder in own.items():
        if key in taken:
            task[key] = str(folder)


def use_own_labels(document: Document, record: Path) -> None:
    """Point the task to the ordered labels in a record, so that it does not have to read the training data."""
    task, file = document.get("task"), labels_file(record, TASK_LABELS)
    if isinstance(task, Table) and file.is_file():
        task["labels"] = str(file)
    for table in _tables(task.get("datasets") if isinstance(task, Table) else None):
        _use_own_names(table, record)


def _use_own_names(table: Table, record: Path) -> None:
    """Point a processor to the labels in a record, since the original label file may have been deleted or changed."""
    key = next((key for key in ("labels", "tags", "types") if isinstance(table.get(key), str)), "")
    # multi-label data uses a different field
    fields = ("label_ids",) if table.get("kind") == "multi" else ("label_id", "label_ids")
    files = [labels_file(record, field) for field in (fields if key == "labels" else ("tag_ids",))]
    own = next((file for file in files if file.is_file()), None)
    if key and own is not None:
        table.pop(key)
        table["labels" if key == "labels" else "tags"] = str(own)  # for `types`, the tags derived from them


def _use_own_weights(document: Document, record: Path) -> None:
    """Configure the model to be built without its initial weights, since a checkpoint contains all weights.

    The architecture of pretrained encoders is read from the record, and word-vector files are not read.
    """
    for table in _tables(document.get("model")):
        path = table.get("path")
        if isinstance(path, str) and encoder_folder(record, path).is_dir():
            table["path"], table["weights"] = str(encoder_folder(record, path)), False
        if str(table.get("type", "")).startswith("alchemy.models.") and table.get("vectors"):
            table["vectors"] = ""


def _tables(value: object) -> Iterator[Table]:
    """Yield a table and all nested tables."""
    if isinstance(value, Table):
        yield value
    for inner in value.items() if isinstance(value, Table) else enumerate(value) if isinstance(value, list) else ():
        yield from _tables(inner[1])
