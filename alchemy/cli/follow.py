"""What `run --test --predict` does after training: the best weights of each record, tested and asked."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from alchemy.cli.derive import Derived, best_checkpoint, for_prediction, for_test, has_best
from alchemy.cli.launch import start

if TYPE_CHECKING:
    from alchemy.config.tree import Document

DERIVE: dict[str, Callable[..., Derived]] = {"test": for_test, "predict": for_prediction}


def refuse_if_impossible(verbs: Sequence[str], documents: Sequence[Document]) -> None:
    """A missing test split is told before hours of training, not after them."""
    for verb in verbs:
        for document in documents:
            DERIVE[verb](document)


def follow(verb: str, results: Sequence[Any], args: argparse.Namespace, **more: Any) -> int:
    """Derives a config from each record that has finished, and runs it; returns the exit code."""
    finished = [result for result in results if result.status == "finished" and result.record_dir is not None]
    documents = [DERIVE[verb](_config(result), _weights(result.record_dir)).document for result in finished]
    if not documents:
        return 0
    purposes = {str(result.record_dir) for result in finished}
    told = argparse.Namespace(**{**vars(args), "desc": f"{verb} of {', '.join(sorted(purposes))}"})
    return start(documents, told, **more)[1]


def _config(result: Any) -> Document:
    """The config as it was before parts took keys out of it: the record has it, unless it was told not to keep it."""
    from alchemy.config.load import prepare_cfg
    from alchemy.records.kept import use_own

    path = result.record_dir / "cfg.toml"
    if not path.is_file():
        return result.cfg
    document = prepare_cfg(path)
    use_own(document, result.record_dir)
    return document


def _weights(record: Any) -> Any:
    """The best weights; a config that monitors nothing has only the last ones."""
    return best_checkpoint(record, "best" if has_best(record) else "last")
