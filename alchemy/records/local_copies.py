"""What a record keeps of the files that its config names, and a config that reads these copies in their place."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alchemy.config.tree import Document, Table
from alchemy.errors import AlchemyError
from alchemy.records.labels import labels_file
from alchemy.records.symlinks import refuse_links
from alchemy.records.tokenizers import tokenizer_folder
from alchemy.registry import parameters, resolve

TASK_LABELS = "task"  # the labels of a task stand beside those of fields, under a name that no field has


def encoder_folder(record: str | Path, path: str | Path) -> Path:
    """Where a record keeps the architecture of a pretrained encoder, by the name of its folder.

    >>> encoder_folder("records/x", "models/bert-tiny/").as_posix()
    'records/x/encoder/bert-tiny'
    """
    return Path(record) / "encoder" / quote(os.path.basename(os.path.abspath(os.path.expanduser(path))), safe="")


def has_best(record: Path) -> bool:
    return any((record / folder / "best").exists() for folder in ("checkpt", "state"))


def best_checkpoint(record: Path, name: str = "best") -> Path:
    """The folder with the weights that a record keeps under `name`: those of a pipe, or a checkpoint."""
    path = next((path for path in (record / "checkpt" / name, record / "state" / name) if path.exists()), None)
    if path is None:
        kept = sorted({entry.name for folder in ("checkpt", "state") for entry in (record / folder).glob("[!.]*")})
        offer = f"it has {', '.join(kept)}: choose with --checkpoint"
        hint = offer if kept else "did the run end before its first save?"
        raise AlchemyError(f"{record} has no checkpoint {name!r}", hint=hint)
    return path


def config_of(record: Path) -> Path:
    """The file with the config that a record was made by."""
    config = refuse_links(record) / "cfg.toml"
    if not config.is_file():
        raise AlchemyError(f"{record} has no cfg.toml", hint="was it run with backup_cfg = false in FileLogger?")
    return config


def use_local_copies(document: Document, record: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Lets a config do with what a record has, but for what `overrides` say; returns the fields of its tokenizers."""
    _use_own_weights(document, record)
    told = {text.partition("=")[0].strip().rpartition(".")[2] for text in overrides}
    if "labels" not in told:
        use_own_labels(document, record)
    _use_own_sides(document, record, told)
    return [] if "tokenizer" in told else use_own_tokenizers(document, record)


def use_own_tokenizers(
    document: Document, record: Path, same: Callable[[Any, Path], bool] = lambda named, own: False
) -> list[str]:
    """Lets the pipes, the task and the model of a config encode with the copies that a record has.

    Returns the fields that they make. The folders that the config names may be gone, or hold another vocabulary by now;
    one that is the `same` is left.
    """
    changed: list[str] = []
    # pipes name the field that they make, models the one that they read
    for section, key in (("task", "to"), ("model", "ids")):
        for table in _tables(document.get(section)):
            field = str(table.get(key, "input_ids"))
            folder, named = tokenizer_folder(record, field), table.get("tokenizer")
            if named is not None and folder.is_dir() and not same(named, folder):
                table["tokenizer"] = str(folder)
                changed += [field] if field not in changed else []
    return changed


def _use_own_sides(document: Document, record: Path, told: Container[str] = ()) -> None:
    """Lets a task on pairs have the tokenizers of both sides, which its corpora had, without looking at these."""
    task = document.get("task")
    folders = {f"{side}_tokenizer": tokenizer_folder(record, side) for side in ("source", "target")}
    own = {key: folder for key, folder in folders.items() if folder.is_dir() and key not in told}
    if not own or not isinstance(task, Table):
        return
    taken, _ = parameters(resolve(str(task.get("type"))))
    for key, folder in own.items():
        if key in taken:
            task[key] = str(folder)


def use_own_labels(document: Document, record: Path) -> None:
    """Lets the task have the labels that it was trained with, in their order, without looking at the training data."""
    task, file = document.get("task"), labels_file(record, TASK_LABELS)
    if isinstance(task, Table) and file.is_file():
        task["labels"] = str(file)
    for table in _tables(task.get("datasets") if isinstance(task, Table) else None):
        _use_own_names(table, record)


def _use_own_names(table: Table, record: Path) -> None:
    """Lets a processor number labels as the record does, where a file has their names: it may be gone, or another."""
    key = next((key for key in ("labels", "tags", "types") if isinstance(table.get(key), str)), "")
    # the numbers of several labels a sample stand in a field of another name
    fields = ("label_ids",) if table.get("kind") == "multi" else ("label_id", "label_ids")
    files = [labels_file(record, field) for field in (fields if key == "labels" else ("tag_ids",))]
    own = next((file for file in files if file.is_file()), None)
    if key and own is not None:
        table.pop(key)
        table["labels" if key == "labels" else "tags"] = str(own)  # the tags that its types have


def _use_own_weights(document: Document, record: Path) -> None:
    """Lets the model be built without what its weights began with: a checkpoint has them all.

    Pretrained encoders take their architecture from the record, and files of word vectors are not read.
    """
    for table in _tables(document.get("model")):
        path = table.get("path")
        if isinstance(path, str) and encoder_folder(record, path).is_dir():
            table["path"], table["weights"] = str(encoder_folder(record, path)), False
        if str(table.get("type", "")).startswith("alchemy.models.") and table.get("vectors"):
            table["vectors"] = ""


def _tables(value: object) -> Iterator[Table]:
    """A table and all those inside it."""
    if isinstance(value, Table):
        yield value
    for inner in value.items() if isinstance(value, Table) else enumerate(value) if isinstance(value, list) else ():
        yield from _tables(inner[1])
