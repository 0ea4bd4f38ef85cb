"""Base class for text tasks: tokenizer, labels, data loading, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from loguru import logger

from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.models.windowing import InWindows, Whole
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.encode import Encode, EncodeWords
from alchemy.pipeline.special_tokens import Template
from alchemy.pipeline.tokenizers import tokenizer_of
from alchemy.tasks.data_checks import (
    Samples,
    check_fields,
    check_labels,
    check_lengths,
    encode_long,
)
from alchemy.tasks.learn_tokenizer import check_vocabulary, is_class, learn_tokenizer
from alchemy.tasks.length_report import log_text_lengths
from alchemy.tasks.supervised_task import SupervisedTask, shuffle_training
from alchemy.text import Tokenizer

DEFAULT_LENGTH = 1024  # maximum tokens of a text if neither the config nor the model sets a limit


class TextTask(SupervisedTask):
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
    pair: bool = False  # whether samples have two texts

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
        self._warned_of_cuts: set[str] = set()
        self.tokenizer = self._tokenizer(tokenizer, learn)
        self.template = template or self.tokenizer.template(self.pair)
        self.reading = self._build_windows() if long == "windows" else Whole()  # used by the encoder of the model
        self.labels: list[str] = self._find_labels(labels)

    # -- methods for subclasses to define
    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        """Return the texts of a sample that a tokenizer is trained on."""
        raise NotImplementedError(f"{type(self).__name__} must define texts(sample) -> texts")

    # -- data
    def load_dataset(self, split: str, **kwargs: Any) -> None:
        source = self._take_source(split, kwargs)
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

    def spell(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return the tokens of the first sample of a batch, for attention maps."""
        return {"source": self.tokenizer.spell(batch[self.reads][0].tolist())}

    def collate_options(self) -> dict[str, Any]:
        """Return the default padding options for a batch."""
        return {"fields": {"input_ids": {"mask": "mask", "value": self.tokenizer.pad or 0}}}

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
