"""Base class for tasks that learn a target from labeled samples: data, labels, predictions and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from loguru import logger
from torch import Tensor

from alchemy.data.messages import in_short
from alchemy.errors import AlchemyError, Refused
from alchemy.loss_observer import Loss
from alchemy.pipeline import EvalPipeline, build_datapipes
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.lst import HoldOut
from alchemy.pipeline.output_rows import OrderedRows
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.report import Report
from alchemy.records.labels import labels_file, read_names
from alchemy.records.local_copies import TASK_LABELS
from alchemy.task import AlchemyTask, loss_of
from alchemy.tasks.data_checks import Samples, check_indexed, checked_samples


class SupervisedTask(AlchemyTask):
    """Base class for tasks on samples with a known target, such as a label, in a list of samples per split.

    A subclass calls `_find_labels` in its constructor, and defines how samples are encoded, how outputs become
    predictions, and how predictions are scored.
    """

    target: ClassVar[str] = "label"  # the sample field to predict
    needs: tuple[str, ...] = ()  # fields that every sample must have, labeled or not

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[str, Samples] = {}
        self._answers = OrderedRows()  # predictions of the current evaluation
        self._report: EvalPipeline = Report()  # unless the evalpipes have one

    # -- methods for subclasses to define
    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        """Return the label names of a sample."""
        raise NotImplementedError(f"{type(self).__name__} must define names(sample) -> label names")

    def check(self, sample: Mapping[str, Any]) -> None:
        """Raise if the task cannot use a sample; the caller adds file and line."""
        for name in self.needs:
            field_of(sample, name, self)
        for name in self.names(sample):
            if name is None or isinstance(name, bool):
                hint = "omit the field for unlabeled samples"
                raise AlchemyError(f"the label is {name}, expected a name", hint=hint)

    def encoded(self, source: Samples) -> Samples:
        """Return the samples of `source` with the fields that the model reads."""
        raise NotImplementedError(f"{type(self).__name__} must define encoded(source) -> dataset")

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Convert the outputs of a batch to prediction rows, including the gold labels if known."""
        raise NotImplementedError(f"{type(self).__name__} must define answers(outputs, batch) -> rows")

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the metrics of prediction rows."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(answers) -> metrics")

    def question(self, item: object) -> dict[str, Any]:
        """Convert a prediction input (a text, several texts, or a dict of sample fields) to an unlabeled sample."""
        hint = (
            "define question(self, item) -> sample, or run `alchemy predict RECORD --split test` on the config's data"
        )
        raise AlchemyError(f"{type(self).__name__} does not support prediction of single inputs", hint=hint)

    def is_labeled(self, sample: Mapping[str, Any]) -> bool:
        """Return whether a sample, a batch or a prediction row has a target."""
        return self.target in sample

    # -- data
    def source(self, split: str) -> Samples:
        """Return the samples of a split as yielded by its pipes, which are built only once."""
        if split not in self._sources:
            tables = self.cfg.get("datasets") or {}
            if split not in tables:
                hint = f"add [task.datasets.{split}], or set a trained tokenizer and `labels`"
                raise AlchemyError(f"missing split {split!r}", section="task.datasets", hint=hint)
            self._sources[split] = self._build_source(tables[split]["pipes"], split)
        return self._sources[split]

    def _build_source(self, pipes: Sequence[Mapping[str, Any]], split: str) -> Samples:
        """Build the pipes of a split and check the first sample."""
        source: Samples = build_datapipes(pipes, section=f"task.datasets.{split}")
        check_indexed(self, source, split)
        for _ in checked_samples(self, source, split, most=1):
            pass
        return source

    def _take_source(self, split: str, kwargs: dict[str, Any]) -> Samples:
        """Return the samples of a split that is being loaded; removes `pipes` from its options."""
        pipes = kwargs.pop("pipes", None)
        if not pipes:
            super().load_dataset(split, **kwargs)
        source = self._sources.pop(split, None)
        return self._build_source(pipes, split) if source is None else source

    # -- steps
    def loss(self, batch: Any) -> Loss:
        batch = self.to_device(batch)
        outputs = self.run.model.forward(batch)
        if self.run.update == 0:  # the first step is enough
            self.check_outputs(outputs)
        return loss_of(self.run.model, outputs, batch)

    def check_outputs(self, outputs: Any) -> None:
        """Raise if `answers` cannot read the outputs of the model; called until the first update."""

    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        batch = self.to_device(batch)
        rows: Any = self.predict_batch(batch, needs_loss and self.is_labeled(batch))
        self._answers.add(self.kept(rows), self.run.progress.evaluated_samples)
        for pipe in self.outputpipes:
            rows = pipe(rows, batch)
        return "", rows

    def predict_batch(self, batch: Any, needs_loss: bool) -> list[dict[str, Any]]:
        """Return the prediction rows of a batch."""
        return self.answers(self.run_model(batch, needs_loss), batch)

    def kept(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what to keep of the rows of a batch until the end of an evaluation."""
        return rows

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self._answers.begin()
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        answers = self._answers.end()
        labeled = bool(answers) and self.is_labeled(answers[0])
        if not labeled:
            logger.warning("{}: no metrics, since the data has no {!r}", split, self.target)
        found = self.scores(answers) if labeled else {}
        found = super().end_eval(split, preds=answers, **found, **kwargs)
        if answers and not any(isinstance(pipe, Report) for pipe in self.evalpipes):
            self._report(split, **{**found, "preds": answers})
        return found

    # -- labels
    def _find_labels(self, configured: list[str] | str | None) -> list[str]:
        labels = self._collect_labels() if configured is None else list(read_labels(configured).names)
        # a list is in the config; a file or the training data may be deleted later
        if not isinstance(configured, list):
            self._check_recorded(labels)
            keep_labels(labels, TASK_LABELS)
        return labels

    def _check_recorded(self, labels: list[str]) -> None:
        file = labels_file(self.run.record_dir or "", TASK_LABELS)
        if self.run.record_dir is not None and file.is_file() and (there := read_names(file)) != labels:
            hint = "restore the labels or the training data, or start a new run"
            text = f"the labels are {in_short(labels)}, but {file} has {in_short(there)}: ids would change meaning"
            raise Refused(text, section="task", hint=hint)

    def _collect_labels(self) -> list[str]:
        source = self.source("train")
        if isinstance(source, HoldOut):  # include labels that occur only in the held-out share
            source = source.datapipe
        listed = self._processor_labels(source)
        if listed:
            return listed
        names = {name for _, sample in checked_samples(self, source, "train") for name in self.names(sample)}
        found = sorted(names, key=lambda name: (isinstance(name, str), name))  # integers and strings cannot be compared
        if not found:
            hint = f"its samples need a field {self.target!r}"
            raise AlchemyError("the training data has no labels", section="task.datasets.train", hint=hint)
        return found

    def _processor_labels(self, source: Samples) -> list[str]:
        """Return the labels that the dataset lists, if any."""
        return list(source.labels) if isinstance(source, Labeled) else []


@runtime_checkable
class Labeled(Protocol):
    """A dataset that lists its labels, such as a processor."""

    labels: Sequence[str]


def batch_fields(batch: Mapping[str, Any], *names: str) -> dict[str, list[Any]]:
    """Return the named fields that a batch has, to add to its prediction rows."""
    there = {name: batch[name] for name in names if name in batch}
    return {name: column.tolist() if isinstance(column, Tensor) else column for name, column in there.items()}


def shuffle_training(options: dict[str, Any], split: str) -> None:
    """Shuffle the training split unless its options set the order."""
    if options.get("sort_by_length", True) and not options.keys() & {"sampler", "batch_sampler"}:
        options.setdefault("shuffle", split == "train")
