"""Base class for text tasks: tokenizer, labels, data loading, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from loguru import logger
from torch import Tensor

from alchemy.data.messages import in_short
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError, Refused, did_you_mean
from alchemy.loss_observer import Loss
from alchemy.models.windowing import InWindows, Whole
from alchemy.pipeline import build_datapipes
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.encode import Encode, EncodeWords
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.lst import HoldOut
from alchemy.pipeline.output_rows import OrderedRows
from alchemy.pipeline.processors.labels import keep_labels, read_labels
from alchemy.pipeline.report import Report
from alchemy.pipeline.special_tokens import Template
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.records.labels import labels_file, read_names
from alchemy.records.local_copies import TASK_LABELS
from alchemy.task import AlchemyTask, loss_of
from alchemy.tasks.data_checks import (
    Samples,
    check_fields,
    check_indexed,
    check_labels,
    check_lengths,
    checked_samples,
    encode_long,
)
from alchemy.tasks.learn_tokenizer import check_vocabulary, is_class, learn_tokenizer
from alchemy.tasks.length_report import log_text_lengths
from alchemy.text import Tokenizer

DEFAULT_LENGTH = 1024  # maximum tokens of a text if neither the config nor the model sets a limit


class TextTask(AlchemyTask):
    """Base class for text tasks, which tokenize the text samples yielded by a split's pipes.

    `tokenizer` is a folder, a tokenizer table, or a class such as `"alchemy.text.Words"` that is trained on the
    training texts; `learn = { min_frequency = 2 }` passes options to its `train` method.
    `labels` is a list or a file; it defaults to the labels listed by the training data's processor, or else to all
    labels in the training data, sorted.
    `template` places the special tokens, `max_length` is the maximum number of tokens including them, and `long` sets
    how longer texts are handled: an error, truncation, or windows that share `overlap` tokens. Without `max_length`,
    the model's limit applies; if it has none, texts are truncated to 1024 tokens with a warning.
    `cache` stores the encoded samples in `.alchemy/cache`; `overwrite_cache` computes them again.
    A subclass defines how samples are encoded, how outputs become predictions, and how predictions are scored.
    """

    batches: ClassVar[dict[str, int]] = {"max_sentences": 32}  # of similar length, to minimize padding
    target: ClassVar[str] = "label"  # the sample field to predict
    pair: bool = False  # whether samples have two texts
    needs: tuple[str, ...] = ()  # fields that every sample must have, labeled or not

    def __init__(
        self,
        *,
        tokenizer: Any,
        learn: Mapping[str, Any],
        labels: list[str] | str | None,
        template: str,
        max_length: int,
        long: str,
        overlap: int,
        cache: bool,
        overwrite_cache: bool,
    ) -> None:
        super().__init__()
        self.max_length, self.long, self.overlap = max_length, long, overlap
        self.cache, self.overwrite_cache = cache, overwrite_cache
        self._sources: dict[str, Samples] = {}
        self._warned_of_cuts: set[str] = set()
        self._answers = OrderedRows()  # predictions of the current evaluation
        self._report = Report()  # unless the evalpipes have one
        self.tokenizer = self._tokenizer(tokenizer, learn)
        self.template = template or self.tokenizer.template(self.pair)
        self.reading = self._build_windows() if long == "windows" else Whole()  # used by the encoder of the model
        self.labels: list[str] = self._find_labels(labels)

    # -- methods for subclasses to define
    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        """Return the texts of a sample that a tokenizer is trained on."""
        raise NotImplementedError(f"{type(self).__name__} must define texts(sample) -> texts")

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

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        pipes = kwargs.pop("pipes", None)
        if not pipes:
            super().load_dataset(split, **kwargs)
        source = self._sources.pop(split, None)
        if source is None:
            source = self._build_source(pipes, split)
        self._check_source(source, split)
        encoded = self.encoded(source)
        if not self._is_bounded:
            encode_long(self, source, encoded)
            self.warn_of_cuts(split, encoded)
        if self.cache:
            encoded = Cache(encoded, overwrite_cache=self.overwrite_cache)
        if "collate_fn" not in kwargs:
            if split == "train":
                check_fields(self, self.run.model, encoded)
            kwargs["collate_fn"] = {"type": "alchemy.data.collate.Pad", **self.collate_options()}
        if kwargs.keys() & {"max_tokens", "max_sentences"}:
            kwargs.setdefault("length_of", "input_ids")
        shuffle_training(kwargs, split)
        if self._is_bounded and self.long == "refuse":
            check_lengths(encoded, kwargs)
        self._datasets[split] = (encoded, kwargs)

    def _check_source(self, source: Samples, split: str) -> None:
        """Check the samples of a split and the tokenizer before the first step."""
        sizes = check_labels(self, source, split)
        log_text_lengths(self, source, sizes, split)
        if split == "train":
            first = [source[index] for index in range(min(len(source), 100))]
            check_vocabulary(self.tokenizer, [text for sample in first for text in self.texts(sample)])

    def encode_options(self) -> dict[str, Any]:
        """Return the options of the encoding pipe: template, maximum length and handling of long texts."""
        longest = self.run.model.max_positions() if self.run.model is not None else None
        if self.long == "windows":  # only the encoder of the model splits texts
            return {"template": self.template, "max_length": 0, "long": "refuse"}
        if longest is not None and self.max_length > longest:
            hint = f"set max_length = {longest} or less"
            text = f"max_length = {self.max_length}, but the model takes at most {longest} tokens"
            raise AlchemyError(text, section="task", hint=hint)
        most, long = self.max_length or longest or DEFAULT_LENGTH, self.long
        if not self._is_bounded and long == "refuse":
            long = "longest_first" if self.pair else "only_first"
        return {"template": self.template, "max_length": most, "long": long}

    @property
    def _is_bounded(self) -> bool:
        """Whether the config or the model limits the length of a text, or the encoder reads it in windows."""
        longest = self.run.model.max_positions() if self.run.model is not None else None
        return bool(self.max_length or longest) or self.long == "windows"

    def warn_of_cuts(self, what: str, encoded: Samples) -> None:
        """Warn about texts truncated by the default limit so far, once per split or for prediction inputs."""
        cut = encoded.places.shortened if isinstance(encoded, Encode | EncodeWords) else 0
        if cut and not self._is_bounded and what not in self._warned_of_cuts:
            self._warned_of_cuts.add(what)
            text = (
                "{}: truncated {:,} of {:,} texts that exceed {:,} tokens; set max_length in [task] to change the limit"
            )
            logger.warning(text, what, cut, len(encoded), DEFAULT_LENGTH)

    def _build_windows(self) -> InWindows:
        row = Template(self.tokenizer, self.template)
        return InWindows(size=self.max_length, overlap=self.overlap, around=row.around)

    def collate_options(self) -> dict[str, Any]:
        """Return the default padding options for a batch."""
        return {"fields": {"input_ids": {"mask": "mask", "value": self.tokenizer.pad or 0}}}

    # -- steps
    def loss(self, batch: Any) -> Loss:
        batch = self.to_device(batch)
        outputs = self.run.model.forward(batch)
        if self.run.update == 0:  # the first step is enough
            self.check_outputs(outputs)
        return loss_of(self.run.model, outputs, batch)

    def check_outputs(self, outputs: Any) -> None:
        """Raise if `answers` cannot read the outputs of the model; called for the first batches."""

    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        batch = self.to_device(batch)
        rows: Any = self.answers(self.run_model(batch, needs_loss and self.target in batch), batch)
        self._answers.add(rows, self.run.progress.evaluated_samples)
        for pipe in self.outputpipes:
            rows = pipe(rows, batch)
        return "", rows

    def begin_eval(self, split: str, **kwargs: object) -> None:
        self._answers.begin()
        super().begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        answers = self._answers.end()
        labeled = bool(answers) and self.target in answers[0]
        if not labeled:
            logger.warning("{}: no metrics, since the data has no {!r}", split, self.target)
        found = self.scores(answers) if labeled else {}
        found = super().end_eval(split, preds=answers, **found, **kwargs)
        if answers and not any(isinstance(pipe, Report) for pipe in self.evalpipes):
            self._report(split, **{**found, "preds": answers})
        return found

    # -- learning from the training data
    def _tokenizer(self, configured: Any, learn: Mapping[str, Any]) -> Tokenizer:
        return (
            learn_tokenizer(configured, self._training_texts(), learn)
            if is_class(configured)
            else tokenizer_of(configured)
        )

    def _training_texts(self) -> Iterator[str]:
        source = self.source("train")
        for index in range(len(source)):
            yield from self.texts(source[index])

    def _find_labels(self, configured: list[str] | str | None) -> list[str]:
        labels = self._collect_labels() if configured is None else list(read_labels(configured).names)
        if not isinstance(
            configured, list
        ):  # otherwise the config contains them; a file or the training data may be deleted later
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
        return list(source.labels) if isinstance(source, _Labeled) else []


@runtime_checkable
class _Labeled(Protocol):
    """A dataset that lists its labels, such as a processor."""

    labels: Sequence[str]


def texts_of(item: object, *names: str) -> dict[str, str]:
    """Return the texts of a prediction input: one text, a tuple or list of texts, or a dict keyed by field name.

    >>> texts_of("a day", "text"), texts_of(("a", "b"), "text", "pair")
    ({'text': 'a day'}, {'text': 'a', 'pair': 'b'})
    """
    wanted = "a text" if len(names) == 1 else f"{len(names)} texts, as a tuple"
    if isinstance(item, Mapping):
        absent = [name for name in names if name not in item]
        if absent:
            hint = did_you_mean(absent[0], map(str, item)) or f"it has {', '.join(map(str, item)) or 'none'}"
            raise AlchemyError(f"missing field {absent[0]!r}", hint=hint)
        given = [item[name] for name in names]
    else:
        given = list(item) if isinstance(item, tuple | list) else [item]
    if len(given) != len(names):
        hint = f"or a dict with {' and '.join(map(repr, names))}"
        raise AlchemyError(f"invalid input {repr(item)[:60]}, expected {wanted}", hint=hint)
    for name, text in zip(names, given):
        if not isinstance(text, str) or is_blank(text):
            raise AlchemyError(f"the {name} is {repr(text)[:60]}, expected a non-empty string")
    return dict(zip(names, given))


def batch_fields(batch: Mapping[str, Any], *names: str) -> dict[str, list[Any]]:
    """Return the named fields that a batch has, to add to its prediction rows."""
    there = {name: batch[name] for name in names if name in batch}
    return {name: column.tolist() if isinstance(column, Tensor) else column for name, column in there.items()}


def shuffle_training(options: dict[str, Any], split: str) -> None:
    """Shuffle the training split unless its options set the order."""
    if options.get("sort_by_length", True) and not options.keys() & {"sampler", "batch_sampler"}:
        options.setdefault("shuffle", split == "train")
