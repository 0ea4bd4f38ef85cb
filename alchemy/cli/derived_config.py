"""Derive a test or prediction config from a training config."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from alchemy.checkpoint.manifest import read_manifest
from alchemy.config.tree import Document, Table
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.metrics.scalars import show_epoch
from alchemy.records.local_copies import best_checkpoint, has_best, use_own_tokenizers
from alchemy.records.status import read_info
from alchemy.symbol_table import TrainedAt

__all__ = [
    "Derived",
    "best_checkpoint",
    "derive_prediction",
    "derive_test",
    "describe_weights",
    "has_best",
    "use_own_tokenizers",
]

TESTER, INFERENCE = "alchemy.runner.Tester", "alchemy.runner.InferenceRunner"
_COLLECT = "alchemy.pipeline.output.Collect"

# tables that only training reads
_TRAIN_TABLES = ("sched", "optim", "stop", "checkpoint", "ema", "capture", "sweep")


class Derived(NamedTuple):
    """A derived config and the names of the removed tables and pipes."""

    document: Document
    left_out: list[str]


def derive_test(document: Document, model_path: Path | None = None, drop: Sequence[str] = ()) -> Derived:
    """Derive a test config, which has only the test split and no scheduler or optimizer.

    `drop` names additional eval pipes to remove.
    """
    derived = _derive(document, TESTER, "test", "test", model_path)
    for name in drop:
        derived.left_out.append(_drop_pipe(derived.document, name))
    return derived


def derive_prediction(document: Document, model_path: Path | None = None, split: str | None = None) -> Derived:
    """Derive the config for predicting `split` (default: `inference` if defined, else `test`), renamed `inference`."""
    splits = _splits(document)
    chosen = split or next((name for name in ("inference", "test") if name in splits), "inference")
    derived = _derive(document, INFERENCE, chosen, "inference", model_path)
    pipes = _section(derived.document, "task").get("outputpipes") or []
    for pipe in [pipe for pipe in pipes if pipe.get("type") == _COLLECT]:
        pipes.remove(pipe)  # nothing reads its list, which would keep all outputs in memory
        derived.left_out.append("output pipe Collect")
    return derived


def _derive(source: Document, runner: str, split: str, known_as: str, model_path: Path | None) -> Derived:
    document = copy.deepcopy(source)
    document["runner"] = runner
    left_out = [f"[{name}]" for name in _TRAIN_TABLES if document.pop(name, None) is not None]
    left_out += _keep_split(document, split, known_as)
    if model_path is not None:
        _section(document, "model")["model_path"] = str(model_path)
        document.trained_at = _trained_at(model_path)
    if weights := _section(document, "model").get("model_path"):
        document.weights = describe_weights(Path(weights), source)
        document.parent, document.parent_fold = _read_parent(Path(weights))
    _move_log_dir(document, known_as)
    return Derived(document, left_out)


def _trained_at(weights: Path) -> TrainedAt | None:
    """Return when the weights were saved, or the end of training if one of the project's pipes saved them."""
    for folder in (weights, weights.parent.parent / "state" / "last"):
        with contextlib.suppress(ValueError):
            manifest = read_manifest(folder)
            return TrainedAt(manifest.update, manifest.epoch, manifest.step)
    return None


def describe_weights(weights: Path, trained: Document) -> str:
    """Return `records/train/ID/state/best, epoch 7/12, update 203`, or only the path if there is no manifest."""
    with contextlib.suppress(ValueError):
        manifest, epochs = read_manifest(weights), trained.table("sched").get("epochs")
        epoch = show_epoch(manifest.epoch, epochs if isinstance(epochs, int | float) else None)
        return f"{weights}, epoch {epoch}, update {manifest.update}"
    return str(weights)


def _read_parent(weights: Path) -> tuple[str, str]:
    """Return the id and the `fold_hash` of the record that contains the weights, or empty strings."""
    record = weights.parent.parent
    with contextlib.suppress(AlchemyError):
        return record.absolute().name, str(read_info(record).get("fold_hash", ""))
    return "", ""


def _keep_split(document: Document, split: str, known_as: str) -> list[str]:
    splits = _splits(document)
    if split not in splits:
        raise AlchemyError(
            f"the config has no split {split!r}",
            section="task.datasets",
            hint=f"available: {', '.join(splits) or 'none'}",
        )
    table = _section(document, "task")["datasets"]
    wanted = table[split]
    others = [name for name in splits if name != split]
    for name in splits:
        table.pop(name)
    table[known_as] = wanted
    return [f"[task.datasets.{name}]" for name in others]


def _drop_pipe(document: Document, name: str) -> str:
    pipes = _section(document, "task").get("evalpipes") or []
    names = [_name(pipe) for pipe in pipes]
    if name not in names:
        hint = did_you_mean(name, names) or f"available: {', '.join(names) or 'none'}"
        raise AlchemyError(
            f"cannot drop {name!r}: the config has no such eval pipe", section="task.evalpipes", hint=hint
        )
    del pipes[names.index(name)]
    return f"eval pipe {name}"


def _move_log_dir(document: Document, purpose: str) -> None:
    """Replace a `.../train` log_dir with `.../test`; leave any other log_dir unchanged."""
    for plugin in document.get("plugins") or []:
        if _name(plugin) == "FileLogger":
            log_dir = PurePosixPath(str(plugin.get("log_dir", "")))
            if log_dir.name == "train":
                plugin["log_dir"] = str(log_dir.with_name(purpose))


def _splits(document: Document) -> list[str]:
    return list(_section(document, "task").table("datasets"))


def _section(document: Document, name: str) -> Table:
    table = document.get(name)
    if not isinstance(table, Table):
        raise AlchemyError(f"the config has no [{name}]", where=document.where())
    return table


def _name(part: object) -> str:
    return str(part.get("type", "")).rpartition(".")[2] if isinstance(part, Table) else ""
