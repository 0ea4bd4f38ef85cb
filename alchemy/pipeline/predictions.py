"""A file of predictions, one row for each sample, as jsonl or csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline.rows import plain, rows_of, to_json

FORMATS = (".jsonl", ".csv")


class PredictionFile:
    """Takes batches of outputs and writes their rows; the first batch replaces what the file held.

    `path = None` writes nothing and only counts.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else check_format(path)
        self.rows = 0
        self._fields: list[str] | None = None
        self._started = False

    @classmethod
    def of(cls, run: Run) -> PredictionFile:
        """The file for a run: the global `predict_out`, else `results/predictions.jsonl` (or .csv) of its record."""
        if not run.group.is_main:
            return cls(None)
        out = run.symbols.try_get_global("predict_out")
        if out:
            return cls(out)
        if any(getattr(pipe, "writes_predictions", False) for pipe in run.task.outputpipes):
            return cls(None)  # a pipe of the config does it already
        if run.record_dir is None:
            logger.warning("predictions are not written: the run has no record")
            return cls(None)
        suffix = run.symbols.try_get_global("predict_format") or "jsonl"
        return cls(Path(run.record_dir) / "results" / f"predictions.{suffix}")

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(self, *failure: object) -> None:
        if self.path is not None and self._started:
            logger.info("{} predictions are in {}", self.rows, self.path)

    def write(self, outputs: Any, inputs: Any = None) -> None:
        """Adds the rows of a batch; they are on the disk when it returns."""
        rows = rows_of(outputs, "the file of predictions")
        self.rows += len(rows)
        if self.path is None:
            return
        fresh, self._started = not self._started, True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("w" if fresh else "a", encoding="utf-8", newline="") as file:
                if self.path.suffix == ".jsonl":
                    file.writelines(to_json(row) + "\n" for row in rows)
                else:
                    self._write_csv(file, rows, fresh)
        except OSError as error:
            raise AlchemyError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from error

    def _write_csv(self, file: Any, rows: list[Any], fresh: bool) -> None:
        rows = [row if isinstance(row, Mapping) else {"value": row} for row in rows]
        if fresh:
            self._fields = list(rows[0]) if rows else []
        writer = csv.DictWriter(file, self._fields or [], lineterminator="\n")
        if fresh:
            writer.writeheader()
        for row in rows:
            odd = set(row) ^ set(self._fields or ())
            if odd:
                hint = "write them as jsonl, where rows may differ"
                raise AlchemyError(f"{self.path}: rows differ in the fields {sorted(odd)}", hint=hint)
            writer.writerow({name: _cell(value) for name, value in row.items()})


def check_format(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in FORMATS:
        raise AlchemyError(f"predictions are written as {' or '.join(FORMATS)}, not as {path.name!r}")
    return path


def _cell(value: Any) -> Any:
    """Numbers and texts as they are; anything nested as JSON, which reads back."""
    value = value if isinstance(value, str | int | float | list | dict | None) else plain(value)
    return to_json(value) if isinstance(value, list | dict) else value
