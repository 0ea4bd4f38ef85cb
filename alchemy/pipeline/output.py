"""Pipes that follow a batch of an evaluation: what the model gave becomes rows, and is collected or written."""

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
from alchemy.pipeline.output_rows import cells_of, jsonable, record_file, rows_of, to_json, written_if_possible

FORMATS = (".jsonl", ".csv")


@OutputPipeline.register()
class Classify(OutputPipeline):
    """Scores of classes become one row for each sample: `pred`, `prob`, the gold `label` where the batch has it.

    `keep` names fields of the batch that go along, `names` the classes, for a readable `pred_name`.
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
            raise AlchemyError(f"Classify: the model gave no {self.logits!r}; it gave {there}")
        scores = torch.as_tensor(outputs[self.logits]).detach().float().cpu()
        if scores.dim() != 2:
            raise AlchemyError(f"Classify expects {self.logits!r} as [samples, classes], not {list(scores.shape)}")
        prob, pred = scores.softmax(-1).max(-1)
        columns: dict[str, list[Any]] = {"pred": pred.tolist(), "prob": prob.tolist()}
        if self.names:
            columns["pred_name"] = [self.names[index] for index in columns["pred"]]
        if isinstance(inputs, Mapping) and self.label in inputs:
            columns["label"] = cells_of(inputs[self.label])
        for name in self.keep:
            if not isinstance(inputs, Mapping) or name not in inputs:
                raise AlchemyError(f"Classify: keep names {name!r}, which the batch does not have")
            columns[name] = cells_of(inputs[name])
        return rows_of(columns, "Classify")


@OutputPipeline.register()
class Collect(OutputPipeline):
    """Adds the rows of every batch to the global list `varname`, where an evaluation pipe finds them."""

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
    """Appends a line of JSON for every row to a file of the record, one file a training step with `step_tag`.

    Without a record nothing is written; where nothing is trained, the file has no step in its name.
    """

    keeps = True

    def __init__(self, filename: Annotated[str, Inside()], step_tag: bool = True) -> None:
        super().__init__()
        self.filename, self.step_tag = filename, step_tag

    def __call__(self, outputs: object, inputs: object) -> object:
        with written_if_possible(self.run, self.filename):
            path = record_file(self.run, self.filename, self.step_tag)
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(to_json(row) + "\n" for row in rows_of(outputs, "SaveAppend"))
        return outputs


@OutputPipeline.register()
class WritePredictions(OutputPipeline):
    """Writes the rows of a pass to `results/<filename>` of the record, as jsonl or csv after its suffix.

    A new pass over the data replaces the file. Without a record nothing is written, and a warning says so.
    """

    keeps = True

    def __init__(self, *, filename: Annotated[str, Inside()] = "predictions.jsonl") -> None:
        super().__init__()
        self.filename = str(_check_format(filename))
        self._file = PredictionFile(None)
        self._pass: Scope | None = None  # the evaluation whose rows the file holds

    def __call__(self, outputs: object, inputs: object) -> object:
        scope = self.run.metrics.current  # an evaluation opens one of its own
        if scope is not self._pass:
            self._pass, self._file = scope, PredictionFile.in_record(self.run, self.filename)
        with written_if_possible(self.run, self.filename):
            self._file.write(outputs)
        return outputs


class PredictionFile:
    """Takes batches of outputs and writes their rows; the first batch replaces what the file held.

    `path = None` writes nothing and only counts.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else _check_format(path)
        self.rows = 0
        self._fields: list[str] = []
        self._started = False

    @classmethod
    def of(cls, run: Run, out: str = "", suffix: str = "jsonl") -> PredictionFile:
        """The file for a run: `out`, else `results/predictions.<suffix>` of its record."""
        if not run.group.is_main:
            return cls(None)
        if out:
            return cls(out)
        if any(isinstance(pipe, WritePredictions) for pipe in run.task.outputpipes):
            return cls(None)  # a pipe of the config does it already
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
            logger.info("{} predictions are in {}", self.rows, self.path)

    def write(self, outputs: object) -> None:
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
                hint = "write them as jsonl, where rows may differ"
                raise AlchemyError(f"{self.path}: rows differ in the fields {sorted(odd)}", hint=hint)
            writer.writerow({name: _cell(value) for name, value in row.items()})


def _check_format(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix not in FORMATS:
        raise AlchemyError(f"predictions are written as {' or '.join(FORMATS)}, not as {path.name!r}")
    return path


def _cell(value: object) -> object:
    """Numbers and texts as they are; anything nested as JSON, which reads back."""
    value = value if isinstance(value, str | int | float | list | dict | None) else jsonable(value)
    return to_json(value) if isinstance(value, list | dict) else value
