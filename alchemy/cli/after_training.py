"""Test and predict with the best weights of each record, for `run --test --predict`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alchemy.cli.derived_config import Derived, best_checkpoint, derive_prediction, derive_test, has_best
from alchemy.cli.launch import start_runs

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.result import RunResult

DERIVE: dict[str, Callable[..., Derived]] = {"test": derive_test, "predict": derive_prediction}


def check_after_training(verbs: Sequence[str], documents: Sequence[Document]) -> None:
    """Raise an error before training if a config cannot be tested or predicted, e.g. because it has no test split."""
    for verb in verbs:
        for document in documents:
            DERIVE[verb](document)


def run_after_training(verb: str, results: Sequence[RunResult], args: argparse.Namespace) -> dict[int, RunResult]:
    """Derive a config from each finished record and run it; return the results by training run index."""
    finished = {i: _record_of(result) for i, result in enumerate(results) if result.status == "finished"}
    records = {i: record for i, record in finished.items() if record is not None}
    documents = [
        DERIVE[verb](_load_config(results[i].cfg, record, args.user_dir), _weights_of(record)).document
        for i, record in records.items()
    ]
    if not documents:
        return {}
    args = argparse.Namespace(**{**vars(args), "desc": f"{verb} after training"})  # `parent` names the training run
    return dict(zip(records, start_runs(documents, args)))


def _record_of(result: RunResult) -> Path | None:
    """Return the record of a run. Only the main process has one; it broadcasts the path to all processes."""
    from alchemy.launch.process_group import open_group

    with open_group() as group:
        record: Path | None = group.broadcast(result.record_dir)
    return record


def _load_config(cfg: Document, record: Path, user_dir: str) -> Document:
    """Load the config saved in the record; if there is none, return `cfg`, which may lack keys that parts popped."""
    from alchemy.config.load import prepare_cfg
    from alchemy.records.local_copies import use_local_copies

    path = record / "cfg.toml"
    if not path.is_file():
        return cfg
    document = prepare_cfg(path, record=True, user_dir=user_dir)
    use_local_copies(document, record)
    return document


def _weights_of(record: Path) -> Path:
    """Return the best weights, or the last weights if the run did not monitor a metric."""
    return best_checkpoint(record, "best" if has_best(record) else "last")
