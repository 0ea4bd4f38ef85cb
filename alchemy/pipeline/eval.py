"""Pipes at the end of an evaluation: scores, the best model, examples, early stopping.

Each takes `enabled = false`, so that one can be switched off without taking it out of the config. All but the scores
look at one split only, `dev` unless told otherwise, so that a test never overwrites the best model.
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
from alchemy.pipeline.output_rows import record_file, to_json, written_if_possible

SCORES: dict[str, Callable[[Sequence[Any], Sequence[Any]], float]] = {
    "accuracy": scores.accuracy,
    "mcc": lambda gold, said: scores.ClassScores(gold, said).scores()["mcc"],
    "mse": lambda gold, said: scores.number_scores(gold, said)["mse"],
    "mae": lambda gold, said: scores.number_scores(gold, said)["mae"],
    "pearson": lambda gold, said: scores.number_scores(gold, said)["pearson"],
    "spearman": lambda gold, said: scores.number_scores(gold, said)["spearman"],
    "chrf": bleu_chrf.chrf,
}


class _Score(EvalPipeline):
    """A score of all rows of an evaluation: of their `pred`, given their `label`.

    The rows are those that alchemy.pipeline.output.Collect has collected as `varname`, else those that the task or a
    pipe before it hands on under that name. They go on to later pipes as `preds`.
    """

    produces: ClassVar[tuple[str, ...]]  # the key in SCORES, and the default name of the score

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

    def score(self, gold: Sequence[Any], said: Sequence[Any]) -> float:
        return SCORES[self.produces[0]](gold, said)

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self.run.symbols.try_pop_global(self.varname)  # an evaluation that failed may have left its rows

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if not self.enabled:
            return kwargs
        own, rows = type(self).__name__, self.run.symbols.try_pop_global(self.varname) or kwargs.get(self.varname)
        if not rows:
            hint = f"put alchemy.pipeline.output.Collect with varname = {self.varname!r} among the outputpipes"
            raise AlchemyError(f"{own}: nothing was collected as {self.varname!r}", hint=hint)
        missing = [key for key in (self.pred, self.label) if not isinstance(rows[0], dict) or key not in rows[0]]
        if missing:
            there = list(rows[0]) if isinstance(rows[0], dict) else type(rows[0]).__name__
            raise AlchemyError(f"{own}: the rows in {self.varname!r} have no {missing[0]!r}; they have {there}")
        gold, said = [row[self.label] for row in rows], [row[self.pred] for row in rows]
        try:
            value = self.score(gold, said)
        except AlchemyError:
            raise
        except Exception as error:  # a library says in its own words that these are no labels, numbers or texts
            text = f"{own} cannot compare {self.pred!r} with {self.label!r}, such as {said[0]!r} with {gold[0]!r}"
            raise AlchemyError(f"{text}: {error}") from error
        return {**kwargs, self.varname: rows, self.name: value, "preds": rows}


@EvalPipeline.register()
class Accuracy(_Score):
    """The share of collected rows whose `pred` equals their `label`; the rows go on to later pipes as `preds`."""

    produces = ("accuracy",)


@EvalPipeline.register()
class F1(_Score):
    """The mean F1 of the labels that occur, as `<average>_f1`; a row has one label, or a list of several."""

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

    def score(self, gold: Sequence[Any], said: Sequence[Any]) -> float:
        several = isinstance(gold[0], list | tuple | set)
        found = (scores.LabelScores if several else scores.ClassScores)(gold, said).scores()
        return found[f"{self.average}_f1"]


@EvalPipeline.register()
class SpanF1(_Score):
    """F1 of whole spans, for rows of tags in a `scheme`, as `span_f1`."""

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
        from alchemy.data.tag_schemes import Scheme  # with all processors, which other scores do without

        super().__init__(varname, pred=pred, label=label, name=name, enabled=enabled)
        self.scheme = Scheme(scheme, begins=True)

    def score(self, gold: Sequence[Any], said: Sequence[Any]) -> float:
        tags = ([self.scheme.in_bioes(row) for row in rows] for rows in (gold, said))
        return scores.SpanScores(*tags).scores()["f1"]


@EvalPipeline.register()
class MCC(_Score):
    """Matthews' correlation, for rows of one label."""

    packages = ("sklearn",)
    produces = ("mcc",)


@EvalPipeline.register()
class MSE(_Score):
    """The mean squared error, for rows of one number."""

    packages = ("sklearn",)
    produces = ("mse",)


@EvalPipeline.register()
class MAE(_Score):
    """The mean absolute error, for rows of one number."""

    packages = ("sklearn",)
    produces = ("mae",)


@EvalPipeline.register()
class Pearson(_Score):
    """The linear correlation, for rows of one number."""

    packages = ("sklearn",)
    produces = ("pearson",)


@EvalPipeline.register()
class Spearman(_Score):
    """The correlation of ranks, for rows of one number."""

    packages = ("sklearn",)
    produces = ("spearman",)


@EvalPipeline.register()
class BLEU(_Score):
    """BLEU of the corpus, for rows of one text.

    `tokenize` is a tokenizer of sacrebleu, such as "zh" or "13a"; by default that which suits the script of the
    references. It goes on to later pipes as `<name>_tokenizer`.
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

    def score(self, gold: Sequence[Any], said: Sequence[Any]) -> float:
        found = self.count(gold, said)
        self.taken = found.tokenize
        return found.score

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        found = super().__call__(split, **kwargs)
        return {**found, f"{self.name}_tokenizer": self.taken} if self.enabled else found


@EvalPipeline.register()
class ChrF(_Score):
    """chrF of the corpus, for rows of one text; it compares characters, and needs no tokenizer."""

    packages = ("sacrebleu",)
    produces = ("chrf",)


class _Monitoring(EvalPipeline):
    """A pipe about one score of a split; whatever it adds to the run is done there, and the scores pass through."""

    produces = ()

    def __init__(self, monitor: str, mode: str, min_delta: float, split: str, enabled: bool) -> None:
        super().__init__()
        self.monitor = Monitor(f"{split}/{monitor.removeprefix(f'{split}/')}", mode, min_delta)
        self.enabled = enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and split == self.monitor.split:
            self.monitor.read(kwargs)  # one that the pipes before it do not give is an error
        return kwargs


@EvalPipeline.register()
class LogBest(_Monitoring):
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
class SaveBest(_Monitoring):
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
        name: Annotated[str, FileName()] = "best",
        min_delta: NonNegativeFloat = 0.0,
        enabled: bool = True,
    ) -> None:
        super().__init__(monitor, mode, min_delta, split, enabled)
        if enabled:
            self.run.watches.append(Watch(self.monitor, keep=1, names=[name]))


@EvalPipeline.register()
class EarlyStop(_Monitoring):
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
            raise AlchemyError(f"SaveExamples: no pipe before it gave {self.rows!r}", hint="put Accuracy before it")
        chosen = [row for row in kwargs[self.rows] if not self.only_wrong or row[self.pred] != row[self.label]]
        with written_if_possible(self.run, self.filename):
            path = record_file(self.run, f"results/{split}_{self.filename}", self.step_tag)
            if path is not None:
                write_atomic(path, "".join(to_json(row) + "\n" for row in chosen[: self.limit or None]))
        return kwargs


@EvalPipeline.register()
class LogTensorboard(EvalPipeline):
    """Writes the scores to the global summary writer as `<prefix>/<split>/<score>` over steps.

    The plugin TensorboardLogger writes them too, over updates: this pipe is for projects that want steps.
    """

    produces = ()

    def __init__(self, *, varname: str = "summary_writer", prefix: str = "eval", enabled: bool = True) -> None:
        super().__init__()
        self.varname, self.prefix, self.enabled = varname, prefix, enabled

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        writer = self.run.symbols.try_get_global(self.varname)
        if self.enabled and writer is not None:
            with written_if_possible(self.run, "TensorBoard"):
                for name, value in numbers_in(kwargs).items():
                    tag = "/".join(part for part in (self.prefix, split, name) if part)
                    writer.add_scalar(tag, value, self.run.where.step)
        return kwargs
