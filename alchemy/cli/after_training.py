"""What `run --test --predict` does after training: the best weights of each record, tested and asked."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.derived_config import Derived, best_checkpoint, derive_prediction, derive_test, has_best
from alchemy.cli.launch import start_runs

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

DERIVE: dict[str, Callable[..., Derived]] = {"test": derive_test, "predict": derive_prediction}


def check_after_training(verbs: Sequence[str], documents: Sequence[Document]) -> None:
    """A missing test split is told before hours of training, not after them."""
    for verb in verbs:
        for document in documents:
            DERIVE[verb](document)


def run_after_training(
    verb: str, results: Sequence[RunResult], args: argparse.Namespace, **more: Any
) -> dict[int, RunResult]:
    """Derives a config from each record that has finished, and runs it; the results, by the place of the training."""
    finished = {i: _record(result) for i, result in enumerate(results) if result.status == "finished"}
    found = {i: record for i, record in finished.items() if record is not None}
    documents = [
        DERIVE[verb](_config(results[i].cfg, record, args.user_dir), _weights(record)).document
        for i, record in found.items()
    ]
    if not documents:
        return {}
    told = argparse.Namespace(**{**vars(args), "desc": f"{verb} of {', '.join(sorted(map(str, found.values())))}"})
    return dict(zip(found, start_runs(documents, told, **more)))


def _record(result: RunResult) -> Path | None:
    """The record of a run; of several processes only the first has one, and all of them go on with it."""
    from alchemy.launch.process_group import open_group

    with open_group() as group:
        found: Path | None = group.broadcast(result.record_dir)
    return found


def _config(cfg: Document, record: Path, user_dir: str) -> Document:
    """The config as it was before parts took keys out of it: the record has it, unless it was told not to keep it."""
    from alchemy.config.load import prepare_cfg
    from alchemy.records.local_copies import use_local_copies

    path = record / "cfg.toml"
    if not path.is_file():
        return cfg
    document = prepare_cfg(path, record=True, user_dir=user_dir)
    use_local_copies(document, record)
    return document


def _weights(record: Path) -> Path:
    """The best weights; a config that monitors nothing has only the last ones."""
    return best_checkpoint(record, "best" if has_best(record) else "last")
