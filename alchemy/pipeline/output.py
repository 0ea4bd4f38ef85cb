"""Output pipes: convert the model outputs of a batch to rows, and collect or write them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TextIO

import torch
from loguru import logger

from alchemy.constraints import Inside
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.metrics.metric_stack import Scope
from alchemy.pipeline import OutputPipeline
from alchemy.pipeline.output_rows import cells_of, jsonable, record_file, rows_of, to_json, tolerate_write_errors

FORMATS = (".jsonl", ".csv")


@OutputPipeline.register()
class Classify(OutputPipeline):
    """Converts logits to one row per sample with `pred`, `prob` and the gold `label`, if the batch has one.

    `keep` lists batch fields to copy to the rows; `names` lists the class names and adds a readable `pred_name`.
    """

    def __init__(
        self,
        *,
        logits: str = "logits",
        label: str = "label",
        keep: list[str] | None = None,
        names: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.logits, self.label, self.keep, self.names = logits, label, keep or [], names or []

    def __call__(self, outputs: object, inputs: object) -> list[dict[str, Any]]:
        if not isinstance(outputs, Mapping) or self.logits not in outputs:
            there = ", ".join(map(str, outputs)) if isinstance(outputs, Mapping) else f"a {type(outputs).__name__}"
            raise AlchemyError(f"Classify: the model outputs have no {self.logits!r}, only {there}")
        scores = torch.as_tensor(outputs[self.logits]).detach().float().cpu()
        if scores.dim() != 2:
            raise AlchemyError(
                f"Classify expects {self.logits!r} of shape [samples, classes], got {list(scores.shape)}"
            )
        prob, pred = scores.softmax(-1).max(-1)
        columns: dict[str, list[Any]] = {"pred": pred.tolist(), "prob": prob.tolist()}
        if self.names:
            columns["pred_name"] = [self.names[index] for index in columns["pred"]]
        if isinstance(inputs, Mapping) and self.label in inputs:
            columns["label"] = cells_of(inputs[self.label])
        for name in self.keep:
            if not isinstance(inputs, Mapping) or name not in inputs:
                raise AlchemyError(f"Classify: keep lists {name!r}, but the batch has no such field")
            columns[name] = cells_of(inputs[name])
        return rows_of(columns, "Classify")


@OutputPipeline.register()
class Collect(OutputPipeline):
    """Appends the rows of every batch to the global list `varname`, which evaluation pipes read."""

    keeps = True

    def __init__(self, varname: str) -> None:
        super().__init__()
        self.varname = varname

    def __call__(self, outputs: object, inputs: object) -> object:
        rows = self.run.symbols.try_get_global(self.varname)
        if rows is None:
            self.run.symbols.set_global(self.varname, rows := [])
        rows += rows_of(outputs, "Collect")
        return outputs


@OutputPipeline.register()
class SaveAppend(OutputPipeline):
    """Appends every row as a line of JSON to a file in the record; with `step_tag`, writes one file per training step.

    Without a record, nothing is written; outside training, the file name has no step.
    """

    keeps = True

    def __init__(self, filename: Annotated[str, Inside()], step_tag: bool = True) -> None:
        super().__init__()
        self.filename, self.step_tag = filename, step_tag

    def __call__(self, outputs: object, inputs: object) -> object:
        with tolerate_write_errors(self.run, self.filename):
            path = record_file(self.run, self.filename, self.step_tag)
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(to_json(row) + "\n" for row in rows_of(outputs, "SaveAppend"))
        return outputs


@OutputPipeline.register()
class WritePredictions(OutputPipeline):
    """Writes the rows of an evaluation to `results/<filename>` in the record, as jsonl or csv depending on the suffix.

    Each pass over the data replaces the file. Without a record, a warning is logged and nothing is written.
    """

    keeps = True

    def __init__(self, *, filename: Annotated[str, Inside()] = "predictions.jsonl") -> None:
        super().__init__()
        self.filename = str(_check_format(filename))
        self._file = PredictionFile(None)
        self._pass: Scope | None = None  # the evaluation whose rows the file contains

    def __call__(self, outputs: object, inputs: object) -> object:
        scope = self.run.metrics.current  # every evaluation opens its own scope
        if scope is not self._pass:
            self._pass, self._file = scope, PredictionFile.in_record(self.run, self.filename)
        with tolerate_write_errors(self.run, self.filename):
            self._file.write(outputs)
        return outputs


class PredictionFile:
    """Writes the rows of output batches to a file; the first batch overwrites an existing file.

    With `path = None`, rows are only counted.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else _check_format(path)
        self.rows = 0
        self._fields: list[str] = []
        self._started = False

    @classmethod
    def of(cls, run: Run, out: str = "", suffix: str = "jsonl") -> PredictionFile:
        """Return the file for a run: `out`, or by default `results/predictions.<suffix>` in its record."""
        if not run.group.is_main:
            return cls(None)
        if out:
            return cls(out)
        if any(isinstance(pipe, WritePredictions) for pipe in run.task.outputpipes):
            return cls(None)  # a pipe in the config already writes them
        return cls.in_record(run, f"predictions.{suffix}")

    @classmethod
    def in_record(cls, run: Run, name: str) -> PredictionFile:
        if run.record_dir is None:
            logger.warning("predictions are not written: the run has no record")
        return cls(None if run.record_dir is None else Path(run.record_dir, "results", name))

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(self, *failure: object) -> None:
        if self.path is not None and self._started:
            logger.info("wrote {} predictions to {}", self.rows, self.path)

    def write(self, outputs: object) -> None:
        """Write the rows of a batch and flush them to disk."""
        rows = rows_of(outputs, "the prediction file")
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
            raise AlchemyError(f"cannot write {str(self.path)!r}: {error.strerror or error}") from error

    def _write_csv(self, file: TextIO, rows: list[Any], fresh: bool) -> None:
        rows = [row if isinstance(row, Mapping) else {"value": row} for row in rows]
        if fresh:
            self._fields = list(rows[0]) if rows else []
        writer = csv.DictWriter(file, self._fields, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for row in rows:
            odd = set(row) ^ set(self._fields)
            if odd:
                hint = "write jsonl, where rows may have different fields"
                raise AlchemyError(f"{self.path}: not all rows have the fields {sorted(odd)}", hint=hint)
            writer.writerow({name: _cell(value) for name, value in row.items()})


def _check_format(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in FORMATS:
        raise AlchemyError(f"predictions must be written to a {' or '.join(FORMATS)} file, got {path.name!r}")
    return path


def _cell(value: object) -> object:
    """Return numbers and strings unchanged, and nested values as JSON."""
    value = value if isinstance(value, str | int | float | list | dict | None) else jsonable(value)
    return to_json(value) if isinstance(value, list | dict) else value
