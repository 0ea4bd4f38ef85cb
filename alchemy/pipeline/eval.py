"""Evaluation pipes: metrics, best model, examples, early stopping.

Set `enabled = false` to turn a pipe off without removing it from the config. Pipes that monitor a metric watch a
single split, `dev` by default, so evaluating the test split never overwrites the best model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Watch
from alchemy.constraints import FileName, Inside, NonNegativeFloat, NonNegativeInt
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.metrics import bleu_chrf, scores
from alchemy.metrics.scalars import numbers_in
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.output_rows import record_file, to_json, tolerate_write_errors

SCORES: dict[str, Callable[[Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": scores.accuracy,
    "mcc": lambda gold, predicted: scores.ClassScores(gold, predicted).scores()["mcc"],
    "mse": lambda gold, predicted: scores.number_scores(gold, predicted)["mse"],
    "mae": lambda gold, predicted: scores.number_scores(gold, predicted)["mae"],
    "pearson": lambda gold, predicted: scores.number_scores(gold, predicted)["pearson"],
    "spearman": lambda gold, predicted: scores.number_scores(gold, predicted)["spearman"],
    "chrf": bleu_chrf.chrf,
}


class _Score(EvalPipeline):
    """Base class for metrics that compare the `pred` of all rows of an evaluation with their `label`.

    The rows are collected by alchemy.pipeline.output.Collect as `varname`, or returned under that name by the task or
    an earlier pipe. Later pipes receive them as `preds`.
    """

    produces: ClassVar[tuple[str, ...]]  # the key in SCORES and the default name of the metric

    def __init__(
        self,
        varname: str = "preds",
        *,
        pred: str = "pred",
        label: str = "label",
        name: str = "",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.varname, self.pred, self.label, self.enabled = varname, pred, label, enabled
        self.name = name or self.produces[0]

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> float:
        return SCORES[self.produces[0]](gold, predicted)

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self.run.symbols.try_pop_global(self.varname)  # a failed evaluation may have left its rows behind

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled:
            return kwargs
        own, rows = type(self).__name__, self.run.symbols.try_pop_global(self.varname) or kwargs.get(self.varname)
        if not rows:
            hint = f"add alchemy.pipeline.output.Collect with varname = {self.varname!r} to the outputpipes"
            raise AlchemyError(f"{own}: nothing was collected as {self.varname!r}", hint=hint)
        missing = [key for key in (self.pred, self.label) if not isinstance(rows[0], dict) or key not in rows[0]]
        if missing:
            there = list(rows[0]) if isinstance(rows[0], dict) else type(rows[0]).__name__
            raise AlchemyError(f"{own}: the rows in {self.varname!r} have no {missing[0]!r}; they have {there}")
        gold, predicted = [row[self.label] for row in rows], [row[self.pred] for row in rows]
        try:
            value = self.score(gold, predicted)
        except AlchemyError:
            raise
        except Exception as error:  # libraries raise various exceptions for invalid values
            text = (
                f"{own} cannot compare {self.pred!r} with {self.label!r}, for example {predicted[0]!r} with {gold[0]!r}"
            )
            raise AlchemyError(f"{text}: {error}") from error
        return {**kwargs, self.varname: rows, self.name: value, "preds": rows}


@EvalPipeline.register()
class Accuracy(_Score):
    """Accuracy: the fraction of rows whose `pred` equals their `label`. Later pipes receive the rows as `preds`."""

    produces = ("accuracy",)


@EvalPipeline.register()
class F1(_Score):
    """F1 averaged over the labels that occur, reported as `<average>_f1`; a row has one label or a list of labels."""

    packages = ("sklearn",)
    produces = ("{average}_f1",)

    def __init__(
        self,
        varname: str = "preds",
        *,
        average: Literal["macro", "micro", "weighted"] = "macro",
        pred: str = "pred",
        label: str = "label",
        name: str = "",
        enabled: bool = True,
    ) -> None:
        super().__init__(varname, pred=pred, label=label, name=name or f"{average}_f1", enabled=enabled)
        self.average = average

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> float:
        several = isinstance(gold[0], list | tuple | set)
        found = (scores.LabelScores if several else scores.ClassScores)(gold, predicted).scores()
        return found[f"{self.average}_f1"]


@EvalPipeline.register()
class SpanF1(_Score):
    """F1 over exact span matches, reported as `span_f1`, for rows of tags in a tagging `scheme`."""

    packages = ("seqeval",)
    produces = ("span_f1",)

    def __init__(
        self,
        varname: str = "preds",
        *,
        scheme: Literal["BIO", "IOB1", "BIOES", "BMES", "BILOU"] = "BIO",
        pred: str = "pred",
        label: str = "tags",
        name: str = "span_f1",
        enabled: bool = True,
    ) -> None:
        from alchemy.data.tag_schemes import Scheme  # imports all processors, which other metrics do not need

        super().__init__(varname, pred=pred, label=label, name=name, enabled=enabled)
        self.scheme = Scheme(scheme, begins=True)

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> float:
        tags = ([self.scheme.in_bioes(row) for row in rows] for rows in (gold, predicted))
        return scores.SpanScores(*tags).scores()["f1"]


@EvalPipeline.register()
class MCC(_Score):
    """Matthews correlation coefficient, for rows with a single label."""

    packages = ("sklearn",)
    produces = ("mcc",)


@EvalPipeline.register()
class MSE(_Score):
    """Mean squared error, for rows with numeric labels."""

    packages = ("sklearn",)
    produces = ("mse",)


@EvalPipeline.register()
class MAE(_Score):
    """Mean absolute error, for rows with numeric labels."""

    packages = ("sklearn",)
    produces = ("mae",)


@EvalPipeline.register()
class Pearson(_Score):
    """Pearson correlation coefficient, for rows with numeric labels."""

    packages = ("sklearn",)
    produces = ("pearson",)


@EvalPipeline.register()
class Spearman(_Score):
    """Spearman rank correlation, for rows with numeric labels."""

    packages = ("sklearn",)
    produces = ("spearman",)


@EvalPipeline.register()
class BLEU(_Score):
    """Corpus BLEU, for rows with text.

    `tokenize` is a sacrebleu tokenizer such as "zh" or "13a"; the default depends on the script of the references.
    Later pipes receive the tokenizer's name as `<name>_tokenizer`.
    """

    packages = ("sacrebleu",)
    produces = ("bleu",)

    def __init__(
        self,
        varname: str = "preds",
        *,
        tokenize: bleu_chrf.Tokenize = "",
        pred: str = "pred",
        label: str = "label",
        name: str = "",
        enabled: bool = True,
    ) -> None:
        super().__init__(varname, pred=pred, label=label, name=name, enabled=enabled)
        self.count, self.taken = bleu_chrf.BleuScorer(tokenize), ""

    def score(self, gold: Sequence[Any], predicted: Sequence[Any]) -> float:
        found = self.count(gold, predicted)
        self.taken = found.tokenize
        return found.score

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        found = super().__call__(split, **kwargs)
        return {**found, f"{self.name}_tokenizer": self.taken} if self.enabled else found


@EvalPipeline.register()
class ChrF(_Score):
    """Corpus chrF, for rows with text; it compares characters and needs no tokenizer."""

    packages = ("sacrebleu",)
    produces = ("chrf",)


class _Monitoring(EvalPipeline):
    """Base class for pipes that monitor one metric of a split; the metrics pass through unchanged."""

    produces = ()

    def __init__(self, monitor: str, mode: str, min_delta: float, split: str, enabled: bool) -> None:
        super().__init__()
        self.monitor = Monitor(f"{split}/{monitor.removeprefix(f'{split}/')}", mode, min_delta)
        self.enabled = enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and split == self.monitor.split:
            self.monitor.read(kwargs)  # raises if no earlier pipe computed the metric
        return kwargs


@EvalPipeline.register()
class LogBest(_Monitoring):
    """Logs and records the best value of a metric, like `[checkpoint] monitor`."""

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
class SaveBest(_Monitoring):
    """Keeps the checkpoint with the best metric, like `[checkpoint] monitor`, and its weights as `checkpt/<name>`.

    The weights are links to the checkpoint's files, or the output of the model's own `save`. `<name>_info.json`
    contains the value, the epoch and step, and all metrics.
    """

    def __init__(
        self,
        *,
        monitor: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        split: str = "dev",
        name: Annotated[str, FileName()] = "best",
        min_delta: NonNegativeFloat = 0.0,
        enabled: bool = True,
    ) -> None:
        super().__init__(monitor, mode, min_delta, split, enabled)
        if enabled:
            self.run.watches.append(Watch(self.monitor, keep=1, names=[name]))


@EvalPipeline.register()
class EarlyStop(_Monitoring):
    """Adds an `alchemy.stop.Patience` rule to the `[stop]` rules; does nothing if `patience` is 0 or less."""

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
    """Writes the rows of an evaluation (with `only_wrong`, only the incorrect ones) to `results/<split>_<filename>`.

    `limit` is the maximum number of rows (0: no limit); `step_tag` writes a separate file for each evaluation.
    """

    produces = ()

    def __init__(
        self,
        *,
        filename: Annotated[str, Inside()] = "examples.jsonl",
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
        if not self.enabled or self.run.record_dir is None:
            return kwargs
        if self.rows not in kwargs:
            raise AlchemyError(f"SaveExamples: no earlier pipe returned {self.rows!r}", hint="put Accuracy before it")
        chosen = [row for row in kwargs[self.rows] if not self.only_wrong or row[self.pred] != row[self.label]]
        with tolerate_write_errors(self.run, self.filename):
            path = record_file(self.run, f"results/{split}_{self.filename}", self.step_tag)
            if path is not None:
                write_atomic(path, "".join(to_json(row) + "\n" for row in chosen[: self.limit or None]))
        return kwargs


@EvalPipeline.register()
class LogTensorboard(EvalPipeline):
    """Writes the metrics to the global summary writer as `<prefix>/<split>/<metric>`, indexed by step.

    The `TensorboardLogger` plugin indexes them by update; use this pipe to plot them by step.
    """

    produces = ()

    def __init__(self, *, varname: str = "summary_writer", prefix: str = "eval", enabled: bool = True) -> None:
        super().__init__()
        self.varname, self.prefix, self.enabled = varname, prefix, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        writer = self.run.symbols.try_get_global(self.varname)
        if self.enabled and writer is not None:
            with tolerate_write_errors(self.run, "TensorBoard"):
                for name, value in numbers_in(kwargs).items():
                    tag = "/".join(part for part in (self.prefix, split, name) if part)
                    writer.add_scalar(tag, value, self.run.where.step)
        return kwargs
