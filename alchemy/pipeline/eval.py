"""Pipes at the end of an evaluation: scores, the best model, examples, early stopping.

Each takes `enabled = false`, so that one can be switched off without taking it out of the config. All but the scores
look at one split only, `dev` unless told otherwise, so that a test never overwrites the best model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Watch
from alchemy.constraints import NonNegativeFloat, NonNegativeInt
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.metrics.numbers import numbers_in
from alchemy.pipeline import EvalPipeline
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
        self.run.symbols.try_pop_global(self.varname)  # an evaluation that failed may have left its rows

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled:
            return kwargs
        rows = self.run.symbols.try_pop_global(self.varname)
        if not rows:
            hint = f"put alchemy.pipeline.output.Collect with varname = {self.varname!r} among the outputpipes"
            raise AlchemyError(f"Accuracy: nothing was collected as {self.varname!r}", hint=hint)
        missing = [key for key in (self.pred, self.label) if not isinstance(rows[0], dict) or key not in rows[0]]
        if missing:
            there = list(rows[0]) if isinstance(rows[0], dict) else type(rows[0]).__name__
            raise AlchemyError(f"Accuracy: the rows in {self.varname!r} have no {missing[0]!r}; they have {there}")
        right = sum(row[self.pred] == row[self.label] for row in rows)
        return {**kwargs, self.name: right / len(rows), "preds": rows}


class Monitoring(EvalPipeline):
    """A pipe about one score of a split; whatever it adds to the run is done there, and the scores pass through."""

    def __init__(self, monitor: str, mode: str, min_delta: float, split: str, enabled: bool) -> None:
        super().__init__()
        self.monitor = Monitor(f"{split}/{monitor.removeprefix(f'{split}/')}", mode, min_delta)
        self.enabled = enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and split == self.monitor.split:
            self.monitor.read(kwargs)  # one that the pipes before it do not give is an error
        return kwargs


@EvalPipeline.register()
class LogBest(Monitoring):
    """Names the score that the log and the record show the best of; `[checkpoint] monitor` does so, too."""

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        split: str = "dev",
        enabled: bool = True,
    ) -> None:
        super().__init__(monitor, mode, 0.0, split, enabled)
        if enabled:
            self.run.watches.append(Watch(self.monitor, keep=0))


@EvalPipeline.register()
class SaveBest(Monitoring):
    """Keeps the checkpoint of the best score, as `[checkpoint] monitor` does, and its weights as `checkpt/<name>`.

    The weights are links to the files of the checkpoint, or what the model's own `save` writes. `<name>_info.json` has
    the value, the place and all scores.
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
        super().__init__(monitor, mode, min_delta, split, enabled)
        if enabled:
            self.run.watches.append(Watch(self.monitor, keep=1, names=[name]))


@EvalPipeline.register()
class EarlyStop(Monitoring):
    """Adds the rule `alchemy.stop.Patience` to those of `[stop]`; a patience of 0 or less adds none."""

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        patience: int = 3,
        min_delta: float = 0.0,
        split: str = "dev",
        enabled: bool = True,
    ) -> None:
        super().__init__(monitor, mode, min_delta, split, enabled)
        if enabled and patience > 0:
            rule = {"monitor": self.monitor.name, "mode": mode, "patience": patience, "min_delta": min_delta}
            self.run.stop_rules.append({"type": "alchemy.stop.Patience", **rule})


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
class LogTensorboard(EvalPipeline):
    """Writes the scores to the global summary writer as `<prefix>/<split>/<score>` over steps.

    The plugin TensorboardLogger writes them too, over updates: this pipe is for projects that want steps.
    """

    def __init__(self, *, varname: str = "summary_writer", prefix: str = "eval", enabled: bool = True) -> None:
        super().__init__()
        self.varname, self.prefix, self.enabled = varname, prefix, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        writer = self.run.symbols.try_get_global(self.varname)
        if self.enabled and writer is not None:
            step = place(self.run).get("step", 0)
            for name, value in numbers_in(kwargs).items():
                writer.add_scalar("/".join(part for part in (self.prefix, split, name) if part), value, step)
        return kwargs


def place(run: Run) -> dict[str, int]:
    """Where the training stands; empty when nothing is trained."""
    sched = run.train_sched
    return {} if sched is None else {"epoch": sched.cur_epoch, "step": sched.cur_step, "update": run.update}
