"""Convert a batch of outputs to JSON-serializable rows, one per sample."""

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
    """Return a list unchanged; split a dict of columns into one dict per sample, dropping scalars such as the loss."""
    if isinstance(outputs, list | tuple):
        return list(outputs)
    if not isinstance(outputs, Mapping):
        raise AlchemyError(f"{what} expects a list of samples or a dict of columns, got {type(outputs).__name__}")
    columns = {name: value for name, value in outputs.items() if _is_column(value)}
    lengths = {name: len(value) for name, value in columns.items()}
    if not columns or len(set(lengths.values())) > 1:
        raise AlchemyError(
            f"{what} cannot split the batch into samples: column lengths {lengths or 'none'}",
            hint="put a pipe before it that returns a list with one entry per sample",
        )
    cells = {name: cells_of(value) for name, value in columns.items()}
    return [{name: cells[name][row] for name in cells} for row in range(next(iter(lengths.values())))]


def cells_of(column: Any) -> list[Any]:
    """Return the values of a column: scalars as Python numbers, larger values as numpy arrays."""
    if isinstance(column, Tensor):
        column = column.detach().cpu()
        column = (column if column.dtype.is_floating_point is False else column.float()).numpy()
    if isinstance(column, np.ndarray):
        return column.tolist() if column.ndim == 1 else list(column)
    return list(column)


def to_json(row: object) -> str:
    """Return one line of JSON; tensors and numpy values become numbers and lists."""
    return json.dumps(row, ensure_ascii=False, default=jsonable)


def jsonable(value: object) -> object:
    """Convert a value that `json` does not support to one that it does."""
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
    """Return the path of a file in the record, or None if there is no record.

    During training, `step_tag` adds a suffix such as `_step12` to the name.
    """
    if run.record_dir is None:
        return None
    path = path_inside(Path(run.record_dir), name)
    if step_tag and run.train_sched is not None:
        path = path.with_name(f"{path.stem}_step{run.train_sched.cur_step}{path.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def tolerate_write_errors(run: Run, name: str) -> Iterator[None]:
    """During training, turn a write error into a single warning; otherwise let it propagate."""
    try:
        yield
    except Exception as error:
        disk = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
        if not disk or run.train_sched is None:
            raise
        run.warn_once("cannot write {}, training continues: {}", name, error)


class OrderedRows:
    """Collects the rows of an evaluation by batch and sorts them by sample; ignores rows outside of an evaluation."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] | None = None
        self._samples: list[int] = []

    def begin(self) -> None:
        self._rows, self._samples = [], []

    def add(self, rows: list[dict[str, Any]], samples: Sequence[int] | None) -> None:
        """Add the rows of a batch and, if known, the indices of its samples."""
        if self._rows is not None:
            self._rows += rows
            self._samples += samples or ()

    def end(self) -> list[dict[str, Any]]:
        rows, self._rows = self._rows or [], None
        if len(self._samples) != len(rows):  # a stream has no sample indices and is read in order
            return rows
        return [row for _, row in sorted(zip(self._samples, rows), key=lambda pair: pair[0])]


def _is_column(value: object) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0
    return isinstance(value, list | tuple)
