"""What the tasks on texts share: a tokenizer, labels, data that are encoded, and answers in words."""

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

DEFAULT_LENGTH = 1024  # tokens of a text, if neither the config nor the model sets a limit


class TextTask(AlchemyTask):
    """Texts in, answers in words out. The pipes of a split end with samples of text; the task encodes them.

    `tokenizer` is a folder, or a table of a tokenizer; or a class such as `"alchemy.text.Words"`, which learns from the
    training texts, with what its `train` takes as `learn = { min_frequency = 2 }`.
    `labels` is a list or a file; without it they are those that the training data list, else all that are there, in the
    order of the alphabet.
    `template` tells where special tokens stand, `max_length` how many tokens a text may have with them, and `long` what
    is done with more: it is refused, cut, or read in windows that share `overlap` tokens. Without `max_length` the
    limit is that of the model; without that, texts are cut after 1024 tokens, and a warning counts them.
    `cache` keeps the encoded samples in `.alchemy/cache`, `overwrite_cache` makes them anew.
    A subclass tells how a source is encoded, what the answers to a batch are, and how good they were.
    """

    batches: ClassVar[dict[str, int]] = {"max_sentences": 32}  # of like length, so that little is padded
    target: ClassVar[str] = "label"  # the field of a sample that is to be predicted
    pair: bool = False  # whether samples have two texts
    needs: tuple[str, ...] = ()  # the fields that each sample has, whether it is labeled or not

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
        self._answers = OrderedRows()  # of the evaluation that is under way
        self._report = Report()  # unless the evalpipes have one
        self.tokenizer = self._tokenizer(tokenizer, learn)
        self.template = template or self.tokenizer.template(self.pair)
        self.reading = self._in_windows() if long == "windows" else Whole()  # as the encoder of the model does it
        self.labels: list[str] = self._find_labels(labels)

    # -- what a subclass defines
    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        """The texts of a sample, of which a tokenizer learns."""
        raise NotImplementedError(f"{type(self).__name__} must define texts(sample) -> texts")

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        """The names of the labels that a sample has."""
        raise NotImplementedError(f"{type(self).__name__} must define names(sample) -> names of labels")

    def check(self, sample: Mapping[str, Any]) -> None:
        """An error where a sample is none that the task can read; file and line are added to it."""
        for name in self.needs:
            field_of(sample, name, self)
        for name in self.names(sample):
            if name is None or isinstance(name, bool):
                hint = "leave out the field of a sample that has no label"
                raise AlchemyError(f"the label is {name}, expected a name", hint=hint)

    def encoded(self, source: Samples) -> Samples:
        """A source of samples with the fields that the model reads."""
        raise NotImplementedError(f"{type(self).__name__} must define encoded(source) -> data set")

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What the model says of each sample of a batch, in words, beside what is true where that is known."""
        raise NotImplementedError(f"{type(self).__name__} must define answers(outputs, batch) -> rows")

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        """How good answers are."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(answers) -> numbers")

    def question(self, item: object) -> dict[str, Any]:
        """The sample, without an answer, that somebody asks about with a text, texts, or the fields of a sample."""
        hint = "define question(self, item) -> sample; `alchemy predict RECORD --split test` answers data of the config"
        raise AlchemyError(f"{type(self).__name__} cannot be asked about single texts", hint=hint)

    # -- data
    def source(self, split: str) -> Samples:
        """The samples of a split as its pipes give them; read once."""
        if split not in self._sources:
            tables = self.cfg.get("datasets") or {}
            if split not in tables:
                hint = f"add [task.datasets.{split}], or give the tokenizer a vocabulary, and `labels`"
                raise AlchemyError(f"there is no split {split!r} to learn from", section="task.datasets", hint=hint)
            self._sources[split] = self._built(tables[split]["pipes"], split)
        return self._sources[split]

    def _built(self, pipes: Sequence[Mapping[str, Any]], split: str) -> Samples:
        """The samples that pipes give, of which the first is looked at before anything is learnt from them."""
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
            source = self._built(pipes, split)
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
        """Tells before the first step what is wrong with the samples of a split, or with its tokenizer."""
        sizes = check_labels(self, source, split)
        log_text_lengths(self, source, sizes, split)
        if split == "train":
            first = [source[index] for index in range(min(len(source), 100))]
            check_vocabulary(self.tokenizer, [text for sample in first for text in self.texts(sample)])

    def fitting(self) -> dict[str, Any]:
        """For the pipe that encodes: where special tokens stand, the most tokens, and what is done with more."""
        longest = self.run.model.max_positions() if self.run.model is not None else None
        if self.long == "windows":  # the encoder of the model cuts, nothing else does
            return {"template": self.template, "max_length": 0, "long": "refuse"}
        if longest is not None and self.max_length > longest:
            hint = f"set max_length = {longest} or less"
            text = f"max_length = {self.max_length}, and the model takes {longest} tokens"
            raise AlchemyError(text, section="task", hint=hint)
        most, long = self.max_length or longest or DEFAULT_LENGTH, self.long
        if not self._is_bounded and long == "refuse":
            long = "longest_first" if self.pair else "only_first"
        return {"template": self.template, "max_length": most, "long": long}

    @property
    def _is_bounded(self) -> bool:
        """Whether the config or the model says how long a text may be, or the encoder reads all of it in windows."""
        longest = self.run.model.max_positions() if self.run.model is not None else None
        return bool(self.max_length or longest) or self.long == "windows"

    def warn_of_cuts(self, what: str, encoded: Samples) -> None:
        """Says once of a split, or of questions, how many texts the default limit has cut so far."""
        cut = encoded.places.shortened if isinstance(encoded, Encode | EncodeWords) else 0
        if cut and not self._is_bounded and what not in self._warned_of_cuts:
            self._warned_of_cuts.add(what)
            text = "{}: {:,} of {:,} texts are longer than {:,} tokens and are cut; max_length in [task] sets the limit"
            logger.warning(text, what, cut, len(encoded), DEFAULT_LENGTH)

    def _in_windows(self) -> InWindows:
        row = Template(self.tokenizer, self.template)
        return InWindows(size=self.max_length, overlap=self.overlap, around=row.around)

    def collate_options(self) -> dict[str, Any]:
        """How a batch is padded, unless the config says it."""
        return {"fields": {"input_ids": {"mask": "mask", "value": self.tokenizer.pad or 0}}}

    # -- steps
    def loss(self, batch: Any) -> Loss:
        batch = self.to_device(batch)
        outputs = self.run.model.forward(batch)
        if self.run.update == 0:  # what is wrong is wrong in the first step
            self.check_outputs(outputs)
        return loss_of(self.run.model, outputs, batch)

    def check_outputs(self, outputs: Any) -> None:
        """An error where `answers` cannot read what the model returned for the first batches."""

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
            logger.warning("{}: the data have no {!r}, so they are not scored", split, self.target)
        found = self.scores(answers) if labeled else {}
        found = super().end_eval(split, preds=answers, **found, **kwargs)
        if answers and not any(isinstance(pipe, Report) for pipe in self.evalpipes):
            self._report(split, **{**found, "preds": answers})
        return found

    # -- learning from the training data
    def _tokenizer(self, told: Any, learn: Mapping[str, Any]) -> Tokenizer:
        return learn_tokenizer(told, self._training_texts(), learn) if is_class(told) else tokenizer_of(told)

    def _training_texts(self) -> Iterator[str]:
        source = self.source("train")
        for index in range(len(source)):
            yield from self.texts(source[index])

    def _find_labels(self, told: list[str] | str | None) -> list[str]:
        labels = self._seen_labels() if told is None else list(read_labels(told).names)
        if not isinstance(told, list):  # else the config has them; a file, and the training data, may be gone one day
            self._check_kept(labels)
            keep_labels(labels, TASK_LABELS)
        return labels

    def _check_kept(self, labels: list[str]) -> None:
        file = labels_file(self.run.record_dir or "", TASK_LABELS)
        if self.run.record_dir is not None and file.is_file() and (there := read_names(file)) != labels:
            hint = "give the labels, or the training data, as they were; or begin a new run"
            text = f"the labels are {in_short(labels)}, and in {file} {in_short(there)}: a number is another label"
            raise Refused(text, section="task", hint=hint)

    def _seen_labels(self) -> list[str]:
        source = self.source("train")
        if isinstance(source, HoldOut):  # a label that only the held-out share has is known too
            source = source.datapipe
        listed = self._listed(source)
        if listed:
            return listed
        names = {name for _, sample in checked_samples(self, source, "train") for name in self.names(sample)}
        found = sorted(names, key=lambda name: (isinstance(name, str), name))  # numbers do not compare with names
        if not found:
            hint = f"its samples need a field {self.target!r}"
            raise AlchemyError("the training data have no labels", section="task.datasets.train", hint=hint)
        return found

    def _listed(self, source: Samples) -> list[str]:
        """The labels that data list by themselves."""
        return list(source.labels) if isinstance(source, _Labeled) else []


@runtime_checkable
class _Labeled(Protocol):
    """Data that list their labels, as those of the processors do."""

    labels: Sequence[str]


def texts_of(item: object, *names: str) -> dict[str, str]:
    """The texts that somebody asks about: one by itself, several as a tuple or list, or all by their names in a dict.

    >>> texts_of("a day", "text"), texts_of(("a", "b"), "text", "pair")
    ({'text': 'a day'}, {'text': 'a', 'pair': 'b'})
    """
    wanted = "a text" if len(names) == 1 else f"{len(names)} texts, as a tuple"
    if isinstance(item, Mapping):
        absent = [name for name in names if name not in item]
        if absent:
            hint = did_you_mean(absent[0], map(str, item)) or f"it has {', '.join(map(str, item)) or 'none'}"
            raise AlchemyError(f"there is no field {absent[0]!r}", hint=hint)
        given = [item[name] for name in names]
    else:
        given = list(item) if isinstance(item, tuple | list) else [item]
    if len(given) != len(names):
        hint = f"or a dict with {' and '.join(map(repr, names))}"
        raise AlchemyError(f"{repr(item)[:60]} is no question, expected {wanted}", hint=hint)
    for name, text in zip(names, given):
        if not isinstance(text, str) or is_blank(text):
            raise AlchemyError(f"the {name} is {repr(text)[:60]}, expected a text that is not empty")
    return dict(zip(names, given))


def batch_fields(batch: Mapping[str, Any], *names: str) -> dict[str, list[Any]]:
    """The fields of a batch that go along with the answers to it, of those that it has."""
    there = {name: batch[name] for name in names if name in batch}
    return {name: column.tolist() if isinstance(column, Tensor) else column for name, column in there.items()}


def shuffle_training(options: dict[str, Any], split: str) -> None:
    """Samples that are trained on come in another order in each epoch, unless the table of the split says otherwise."""
    if options.get("sort_by_length", True) and not options.keys() & {"sampler", "batch_sampler"}:
        options.setdefault("shuffle", split == "train")
