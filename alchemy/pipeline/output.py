"""Pipes that follow a batch of an evaluation: what the model gave becomes rows, and is collected or written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.pipeline import OutputPipeline
from alchemy.pipeline.predictions import PredictionFile, check_format
from alchemy.pipeline.rows import cells_of, record_file, rows_of, to_json

__all__ = ["Classify", "Collect", "PredictionFile", "SaveAppend", "WritePredictions"]


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

    def __call__(self, outputs: Any, inputs: Any) -> list[dict[str, Any]]:
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

    def __init__(self, varname: str) -> None:
        super().__init__()
        self.varname = varname

    def __call__(self, outputs: Any, inputs: Any) -> Any:
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

    def __init__(self, filename: str, step_tag: bool = True) -> None:
        super().__init__()
        self.filename, self.step_tag = filename, step_tag

    def __call__(self, outputs: Any, inputs: Any) -> Any:
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

    writes_predictions = True

    def __init__(self, *, filename: str = "predictions.jsonl") -> None:
        super().__init__()
        self.filename = str(check_format(filename))
        self._file = PredictionFile(None)
        self._pass: Any = None  # the evaluation whose rows the file holds

    def __call__(self, outputs: Any, inputs: Any) -> Any:
        run = self.run
        scope = run.metrics.current  # an evaluation opens one of its own
        if scope is not self._pass:
            self._pass = scope
            folder = run.record_dir
            self._file = PredictionFile(None if folder is None else Path(folder) / "results" / self.filename)
            if folder is None:
                logger.warning("predictions are not written: the run has no record")
        self._file.write(outputs, inputs)
        return outputs
