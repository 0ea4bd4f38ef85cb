"""Pipes that write files: a full disk causes one warning during training, and an error elsewhere."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline.eval import LogTensorboard, SaveExamples
from alchemy.pipeline.output import SaveAppend, WritePredictions
from tests.logs import warned


class FullWriter:
    def add_scalar(self, *row: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


CALLS: dict[str, Callable[[], object]] = {
    "SaveExamples": lambda: SaveExamples()("dev", preds=[{"pred": 1, "label": 1}]),
    "SaveAppend": lambda: SaveAppend("results/rows.jsonl")([1], {}),
    "WritePredictions": lambda: WritePredictions()([{"a": 1}], {}),
    "LogTensorboard": lambda: LogTensorboard()("dev", accuracy=0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_training_goes_on_with_one_warning(training: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "results").write_text("in the way of the folder")
    training.symbols.set_global("summary_writer", FullWriter())
    with warned() as lines:
        for _ in range(3):
            CALLS[name]()
    assert len(lines) == 1 and "cannot write " in lines[0] and ", training continues: " in lines[0]


@pytest.mark.parametrize("name", CALLS)
def test_without_a_training_it_is_an_error(training: Any, tmp_path: Path, name: str) -> None:
    training.train_sched = None
    (tmp_path / "results").write_text("in the way of the folder")
    training.symbols.set_global("summary_writer", FullWriter())
    with pytest.raises((OSError, AlchemyError), match=r"exists|Not a directory|No space"):
        CALLS[name]()
