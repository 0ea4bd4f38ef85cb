"""A batch of outputs as rows, one for each sample, in values that JSON can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.records.symlinks import path_inside


def rows_of(outputs: object, what: str = "an output pipe") -> list[Any]:
    """A list as it is; of a dict of columns one dict for each sample, leaving out what has no samples (the loss)."""
    if isinstance(outputs, list | tuple):
        return list(outputs)
    if not isinstance(outputs, Mapping):
        raise AlchemyError(f"{what} expects a list of samples or a dict of columns, not {type(outputs).__name__}")
    columns = {name: value for name, value in outputs.items() if _is_column(value)}
    lengths = {name: len(value) for name, value in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        raise AlchemyError(
            f"{what} cannot tell the samples of a batch apart: columns {lengths or 'none'}",
            hint="put a pipe before it that makes a list with one entry for each sample",
        )
    cells = {name: cells_of(value) for name, value in columns.items()}
    return [{name: cells[name][row] for name in cells} for row in range(next(iter(lengths.values())))]


def cells_of(column: Any) -> list[Any]:
    """The values of a column one by one: numbers as Python numbers, larger things as numpy arrays."""
    if isinstance(column, Tensor):
        column = column.detach().cpu()
        column = (column if column.dtype.is_floating_point is False else column.float()).numpy()
    if isinstance(column, np.ndarray):
        return column.tolist() if column.ndim == 1 else list(column)
    return list(column)


def to_json(row: object) -> str:
    """One line of JSON; tensors and numpy values are written as numbers and lists."""
    return json.dumps(row, ensure_ascii=False, default=jsonable)


def jsonable(value: object) -> object:
    """What `json` does not know, in terms that it does."""
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, range) else str(value)


def record_file(run: Run, name: str, step_tag: bool = False) -> Path | None:
    """A file of the record, in a training `preds.jsonl` as `preds_step12.jsonl` if wanted; without a record None."""
    if run.record_dir is None:
        return None
    path = path_inside(Path(run.record_dir), name)
    if step_tag and run.train_sched is not None:
        path = path.with_name(f"{path.stem}_step{run.train_sched.cur_step}{path.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def written_if_possible(run: Run, name: str) -> Iterator[None]:
    """During training, a file that cannot be written gives one warning; elsewhere it is an error."""
    try:
        yield
    except Exception as error:
        disk = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
        if not disk or run.train_sched is None:
            raise
        run.warn_once("{} cannot be written, training continues: {}", name, error)


class OrderedRows:
    """Rows that come batch by batch, of samples in any order. Outside an evaluation nothing is kept."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] | None = None
        self._samples: list[int] = []

    def begin(self) -> None:
        self._rows, self._samples = [], []

    def add(self, rows: list[dict[str, Any]], samples: Sequence[int] | None) -> None:
        """The rows of a batch, and the numbers of its samples, where somebody knows them."""
        if self._rows is not None:
            self._rows += rows
            self._samples += samples or ()

    def end(self) -> list[dict[str, Any]]:
        rows, self._rows = self._rows or [], None
        if len(self._samples) != len(rows):  # of a stream nobody knows the numbers, and they come in order
            return rows
        return [row for _, row in sorted(zip(self._samples, rows), key=lambda pair: pair[0])]


def _is_column(value: object) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0
    return isinstance(value, list | tuple)
