"""Pipes at the end of an evaluation: scores, the best model, examples, early stopping.

Each takes `enabled = false`, so that one can be switched off without taking it out of the config. All but the scores
look at one split only, `dev` unless told otherwise, so that a test never overwrites the best model.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.constraints import NonNegativeFloat, NonNegativeInt
from alchemy.context import Run
from alchemy.errors import AlchemyError, RunFailed
from alchemy.files import replace_folder, write_atomic
from alchemy.metrics.numbers import numbers_in
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.best import Best
from alchemy.pipeline.rows import step_name, to_json

__all__ = ["Accuracy", "EarlyStop", "LogBest", "LogTensorboard", "SaveBest", "SaveExamples"]


@EvalPipeline.register()
class Accuracy(EvalPipeline):
    """The share of collected rows whose `pred` equals their `label`; the rows go on to later pipes as `preds`."""

    def __init__(
        self,
        varname: str = "preds",
        *,
        pred: str = "pred",
        label: str = "label",
        name: str = "accuracy",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.varname, self.pred, self.label, self.name, self.enabled = varname, pred, label, name, enabled

    def begin_eval(self, split: str, **kwargs: Any) -> None:
        self.run.try_pop_global(self.varname)  # an evaluation that failed may have left its rows

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled:
            return kwargs
        rows = self.run.try_pop_global(self.varname)
        if not rows:
            hint = f"put alchemy.pipeline.output.Collect with varname = {self.varname!r} among the outputpipes"
            raise AlchemyError(f"Accuracy: nothing was collected as {self.varname!r}", hint=hint)
        missing = [key for key in (self.pred, self.label) if not isinstance(rows[0], dict) or key not in rows[0]]
        if missing:
            there = list(rows[0]) if isinstance(rows[0], dict) else type(rows[0]).__name__
            raise AlchemyError(f"Accuracy: the rows in {self.varname!r} have no {missing[0]!r}; they have {there}")
        right = sum(row[self.pred] == row[self.label] for row in rows)
        return {**kwargs, self.name: right / len(rows), "preds": rows}


@EvalPipeline.register()
class LogBest(EvalPipeline):
    """Says after each evaluation how it went, and what the best one was."""

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        split: str = "dev",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.best, self.split, self.enabled = Best(monitor, mode), split, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled:
            scores = ", ".join(f"{name} {value:.4g}" for name, value in numbers_in(kwargs).items())
            logger.info("{}: {}", split, scores or "no scores")
            if split == self.split:
                self._compare(split, kwargs)
        return kwargs

    def _compare(self, split: str, scores: dict[str, Any]) -> None:
        saves = any(isinstance(pipe, SaveBest) for pipe in getattr(self.run.task, "evalpipes", ()))
        value = self.best.read(split, scores, quiet=saves)  # one of them warns
        if self.best.show(value, place(self.run)):
            if not saves:  # else the record has the saved one
                note_best(self.run, self.best.name(split), value)
            logger.info("{} {} {:.4g} is the best so far", split, self.best.monitor, value)
        elif self.best.value is not None:
            at = ", ".join(f"{name} {number}" for name, number in self.best.at.items())
            logger.info("{} {}: best {:.4g} at {}", split, self.best.monitor, self.best.value, at)

    def state_dict(self) -> dict[str, Any]:
        return self.best.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best.load_state_dict(state)


@EvalPipeline.register()
class SaveBest(EvalPipeline):
    """Saves the model as `checkpt/<name>` of the record whenever the monitored number is the best so far.

    The new one is complete before it takes the place of the old. `best_info.json` tells value, place and all scores.
    """

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        split: str = "dev",
        name: str = "best",
        min_delta: NonNegativeFloat = 0.0,
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.best, self.split, self.name, self.enabled = Best(monitor, mode, min_delta), split, name, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled or split != self.split:
            return kwargs
        value, before = self.best.read(split, kwargs), self.best.state_dict()
        if self.best.show(value, place(self.run)) and self.run.record_dir is not None:
            try:
                self._save(Path(self.run.record_dir), split, value, kwargs)
            except (RunFailed, OSError) as error:  # a full disk does not end a training
                self.best.load_state_dict(before)
                logger.warning("the best model could not be saved, the next is tried again: {}", error)
                return kwargs
        if self.best.waited == 0:
            note_best(self.run, self.best.name(split), value)
        return kwargs

    def _save(self, folder: Path, split: str, value: float, scores: dict[str, Any]) -> None:
        target = Path(self.run.try_get_global("checkpt_dir") or folder / "checkpt") / self.name
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(target, self.run.model.save)
        info = {
            "metric": self.best.monitor,
            "value": value,
            "split": split,
            **self.best.at,
            "scores": numbers_in(scores),
        }
        write_atomic(folder / f"{self.name}_info.json", json.dumps(info, indent=1) + "\n")

    def state_dict(self) -> dict[str, Any]:
        return self.best.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best.load_state_dict(state)


@EvalPipeline.register()
class SaveExamples(EvalPipeline):
    """Writes rows of an evaluation to `results/<split>_<filename>`: all of them, or with `only_wrong` the errors.

    `limit` bounds their number (0: no bound), `step_tag` keeps one file for each evaluation.
    """

    def __init__(
        self,
        *,
        filename: str = "examples.jsonl",
        rows: str = "preds",
        limit: NonNegativeInt = 100,
        only_wrong: bool = False,
        pred: str = "pred",
        label: str = "label",
        step_tag: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.filename, self.rows, self.limit, self.only_wrong = filename, rows, limit, only_wrong
        self.pred, self.label, self.step_tag, self.enabled = pred, label, step_tag, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        folder, sched = self.run.record_dir, self.run.train_sched
        if not self.enabled or folder is None:
            return kwargs
        if self.rows not in kwargs:
            raise AlchemyError(f"SaveExamples: no pipe before it gave {self.rows!r}", hint="put Accuracy before it")
        chosen = [row for row in kwargs[self.rows] if not self.only_wrong or row[self.pred] != row[self.label]]
        step = sched.cur_step if sched is not None and self.step_tag else None
        path = step_name(Path(folder) / "results" / f"{split}_{self.filename}", step)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(to_json(row) + "\n" for row in chosen[: self.limit or None]))
        return kwargs


@EvalPipeline.register()
class EarlyStop(EvalPipeline):
    """Ends the training when `patience` evaluations in a row brought nothing better; 0 or less never does."""

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        patience: int = 3,
        min_delta: NonNegativeFloat = 0.0,
        split: str = "dev",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.best, self.patience, self.split, self.enabled = Best(monitor, mode, min_delta), patience, split, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled or self.patience <= 0 or split != self.split:
            return kwargs
        self.best.show(self.best.read(split, kwargs, quiet=True), place(self.run))
        reason = self.best.overdue(self.best.name(split), self.patience)
        if reason:
            self.run.stop(reason)
        return kwargs

    def state_dict(self) -> dict[str, Any]:
        return self.best.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best.load_state_dict(state)


@EvalPipeline.register()
class LogTensorboard(EvalPipeline):
    """Writes the scores to the global summary writer as `<prefix>/<split>/<score>` over steps.

    The plugin TensorboardLogger writes them too, over updates: this pipe is for projects that want steps.
    """

    def __init__(self, *, varname: str = "summary_writer", prefix: str = "eval", enabled: bool = True) -> None:
        super().__init__()
        self.varname, self.prefix, self.enabled = varname, prefix, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        writer = self.run.try_get_global(self.varname)
        if self.enabled and writer is not None:
            step = place(self.run).get("step", 0)
            for name, value in numbers_in(kwargs).items():
                writer.add_scalar("/".join(part for part in (self.prefix, split, name) if part), value, step)
        return kwargs


def place(run: Run) -> dict[str, int]:
    """Where the training stands; empty when nothing is trained."""
    sched = run.train_sched
    return {} if sched is None else {"epoch": sched.cur_epoch, "step": sched.cur_step, "update": run.update}


def note_best(run: Run, metric: str, value: float) -> None:
    """Puts the best value into `record.json`; a disk that is full does not end training."""
    with contextlib.suppress(OSError):
        run.record.note(best={"metric": metric, "value": value, "update": place(run).get("update", 0)})
