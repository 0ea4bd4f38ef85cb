"""Pipes that tokenize text or words into ids and align word-level annotations with the tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset

from alchemy.constraints import NonNegativeInt
from alchemy.data.pipe_chain import reader_share, title, walk
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline, where_before
from alchemy.pipeline.char_spans import token_spans
from alchemy.pipeline.itr import field_of, length_of
from alchemy.pipeline.special_tokens import Template
from alchemy.pipeline.tokenizers import TokenizerSpec, keep_tokenizer, tokenizer_digest, tokenizer_of
from alchemy.text import Tokenizer

__all__ = ["Encode", "EncodeStream", "EncodeWords", "EncodeWordsStream"]


class MadeField(NamedTuple):
    """An output field of a pipe: the parameter that names it, its name, its padding value and its type."""

    parameter: str
    name: str
    pad: int | None
    kind: str = "int64"


class FieldMaker:
    """Mixin for a DataPipeline that adds fields to samples and never replaces existing fields."""

    datapipe: Any
    takes: Mapping[str, str] | None
    gives: Mapping[str, str] | None
    makes: list[MadeField]

    def declare(self, takes: Mapping[str, tuple[str, str]], makes: list[MadeField]) -> None:
        """Declare the input fields, keyed by the parameters that name them, and the fields that are added."""
        named = {name: parameter for parameter, (name, _) in takes.items()}
        before = _declared_fields(self.datapipe)
        for parameter, name, *_ in makes:
            if name in named or not name:
                twice = f"{named.get(name)} and {parameter} both name the field {name!r}"
                hint = "each new field needs a unique name"
                raise AlchemyError(twice if name else f"{parameter} is empty", hint=hint)
            if name in (before or ()):
                raise _field_exists(name, f"{parameter} = {name!r}")
            named[name] = parameter
        self.makes, self.takes = makes, dict(takes.values())
        if before is not None:  # otherwise the other fields of a sample are unknown
            self.gives = {**before, **{made.name: made.kind for made in makes}}

    def pads(self) -> dict[str, int]:
        """Return the padding values of the fields that this pipe adds."""
        return {made.name: made.pad for made in self.makes if made.pad is not None}

    def add_fields(self, sample: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """Return a sample with the new fields; raise if it already has one of them."""
        twice = made.keys() & sample.keys()
        if twice:
            raise _field_exists(min(twice), title(self))
        return {**sample, **made}


class _Encoder(FieldMaker):
    """Base class for Encode and EncodeWords, with a tokenizer and a template for the special tokens."""

    tokenizer: Tokenizer
    places: Template
    to: str
    max_length: int

    def encode(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a sample with the ids of its text."""
        raise NotImplementedError

    def encode_at(self, sample: Mapping[str, Any], where: Callable[[], str]) -> dict[str, Any]:
        """Encode a sample; error messages include its location."""
        try:
            return self.encode(sample)
        except AlchemyError as error:
            raise AlchemyError(f"{where()}: {error.problem.message}", hint=error.problem.hint) from error


class _ByIndex(_Encoder):
    """Map-style implementation."""

    where = where_before

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.encode_at(self.datapipe[index], lambda: self.where(index))

    def __len__(self) -> int:
        return len(self.datapipe)


class _Streamed(_Encoder):
    """Iterable-style implementation."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, sample in enumerate_samples(self.datapipe):
            yield self.encode_at(sample, f"sample {number}".__str__)

    def __len__(self) -> int:
        return length_of(self)


class Texts(_Encoder, DataPipeline):
    """Implementation shared by Encode and EncodeStream."""

    def __init__(
        self,
        datapipe: Any,
        *,
        tokenizer: TokenizerSpec,
        field: str = "text",
        to: str = "input_ids",
        pair: str = "",
        segments: str = "",
        template: str = "",
        max_length: NonNegativeInt = 0,
        long: Literal["refuse", "longest_first", "only_first", "only_second"] = "refuse",
        spans: dict[str, str] = {},
    ) -> None:
        super().__init__(check_index(self, datapipe))
        self.field, self.to, self.pair, self.segments = field, to, pair, segments
        self.template, self.max_length, self.long, self.spans = template, max_length, long, spans
        self.tokenizer = tokenizer_of(tokenizer)
        self.digest = tokenizer_digest(self.tokenizer)  # part of the cache key
        if spans:
            self.tokenizer.offsets("")  # raises if the tokenizer has no offsets
        takes = {"field": (field, "str"), **({"pair": (pair, "str")} if pair else {}), **_list_fields("spans", spans)}
        makes = [MadeField("to", to, self.tokenizer.pad), *([MadeField("segments", segments, 0)] if segments else [])]
        makes += [MadeField(f"spans.{name}", made, None, "list") for name, made in spans.items()]
        self.declare(takes, makes)
        self.places = Template(self.tokenizer, template, pair=bool(pair), max_length=max_length, long=long)
        keep_tokenizer(self.tokenizer, to, str(tokenizer))

    def padding(self) -> dict[str, int]:
        return super().padding() | self.pads()

    def encode(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        text = self._text(sample, self.field)
        ids, places = self.tokenizer.offsets(text) if self.spans else (self.tokenizer.encode(text), [])
        rows = {"$A": ids}
        if self.pair:
            rows["$B"] = self.tokenizer.encode(self._text(sample, self.pair))
        row = self.places(rows)
        made: dict[str, Any] = {self.to: row.ids, **({self.segments: row.segments} if self.segments else {})}
        shown = np.flatnonzero(row.own).tolist() if self.spans else []
        for name, to in self.spans.items():
            made[to] = token_spans(field_of(sample, name, self), places, shown, len(text))
        return self.add_fields(sample, made)

    def _text(self, sample: Mapping[str, Any], name: str) -> str:
        text = field_of(sample, name, self)
        if isinstance(text, str):
            return text
        hint = "use EncodeWords for lists of words" if isinstance(text, list) else ""
        raise AlchemyError(f"{title(self)}: the field {name!r} must be a string, got {repr(text)[:60]}", hint=hint)


class Wordwise(_Encoder, DataPipeline):
    """Implementation shared by EncodeWords and EncodeWordsStream."""

    def __init__(
        self,
        datapipe: Any,
        *,
        tokenizer: TokenizerSpec,
        field: str = "tokens",
        to: str = "input_ids",
        segments: str = "",
        template: str = "",
        max_length: NonNegativeInt = 0,
        long: Literal["refuse", "only_first"] = "refuse",
        blank: bool = False,
        words: str = "",
        align: dict[str, str] = {},
        ignore: int = -100,
        marks: dict[str, str] = {},
    ) -> None:
        super().__init__(check_index(self, datapipe))
        self.field, self.to, self.segments = field, to, segments
        self.template, self.max_length, self.long = template, max_length, long
        self.blank, self.words, self.align, self.ignore, self.marks = blank, words, align, ignore, marks
        if type(ignore) is not int:
            raise AlchemyError(f"ignore must be an integer, got {ignore!r}")
        self.tokenizer = tokenizer_of(tokenizer)
        self.digest = tokenizer_digest(self.tokenizer)  # part of the cache key
        makes = [MadeField("to", to, self.tokenizer.pad), *([MadeField("segments", segments, 0)] if segments else [])]
        makes += [MadeField("words", words, -1)] if words else []
        makes += [MadeField(f"align.{name}", made, ignore) for name, made in align.items()]
        makes += [MadeField(f"marks.{name}", made, 0) for name, made in marks.items()]
        self.declare({"field": (field, "list"), **_list_fields("align", align), **_list_fields("marks", marks)}, makes)
        self.places = Template(self.tokenizer, template, max_length=max_length, long=long, cuts=("only_first",))
        keep_tokenizer(self.tokenizer, to, str(tokenizer))

    def padding(self) -> dict[str, int]:
        return super().padding() | self.pads()

    def encode(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        words = field_of(sample, self.field, self)
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            text = f"{title(self)}: the field {self.field!r} must be a list of words, got {str(words)[:40]!r}"
            raise AlchemyError(text, hint="use alchemy.pipeline.encode.Encode for strings")
        pieces = [self._pieces(number, word) for number, word in enumerate(words)]
        row = self.places({"$A": list(itertools.chain.from_iterable(pieces))})
        sizes = list(map(len, pieces))
        of_word = np.repeat(np.arange(len(sizes)), sizes)
        word_T = np.full(len(row.ids), -1)
        word_T[row.own] = of_word[: row.own.sum()]
        made = {self.to: row.ids, **({self.segments: row.segments} if self.segments else {})}
        made |= {self.words: word_T} if self.words else {}
        made |= {to: self._align_labels(sample, name, word_T, len(sizes)) for name, to in self.align.items()}
        made |= {to: self._mark_words(sample, name, word_T, sizes) for name, to in self.marks.items()}
        return self.add_fields(sample, made)

    def _pieces(self, number: int, word: str) -> list[int]:
        pieces = self.tokenizer.encode(f" {word}" if self.blank and number else word)
        if pieces:
            return pieces
        if self.tokenizer.unk is None:
            text = f"{title(self)}: word {number}, {word!r}, has no tokens, and the tokenizer has no unknown token"
            raise AlchemyError(text, hint="remove or replace the word in an earlier pipe")
        return [self.tokenizer.unk]  # a word without tokens keeps its position and its tag

    def _align_labels(self, sample: Mapping[str, Any], name: str, word_T: np.ndarray, count: int) -> np.ndarray:
        """Return one value per token: the word's value for its first token, and `ignore` for all other tokens."""
        values = _as_int64(field_of(sample, name, self))
        if values is None or values.shape != (count,):
            got = f"the shape {values.shape}" if values is not None else "values that are not integers"
            text = f"{title(self)}: the field {name!r} has {got}, but there are {count} words"
            raise AlchemyError(text, hint="it must contain one integer per word")
        first_T = (word_T >= 0) & (word_T != np.concatenate(([-1], word_T[:-1])))
        return np.where(first_T, values[word_T], self.ignore) if count else np.full(len(word_T), self.ignore)

    def _mark_words(self, sample: Mapping[str, Any], name: str, word_T: np.ndarray, sizes: list[int]) -> np.ndarray:
        """Return 1 for the tokens of the words `[start, end)` and 0 for all other tokens."""
        mark = field_of(sample, name, self)
        whole = isinstance(mark, list | tuple) and len(mark) == 2 and {type(place) for place in mark} == {int}
        if not whole or not 0 <= mark[0] < mark[1] <= len(sizes):
            hint = "write it as [start, end] in words, end exclusive"
            raise AlchemyError(f"{title(self)}: {name} is {mark!r}, but there are {len(sizes)} words", hint=hint)
        start, end = mark
        mark_T = (word_T >= start) & (word_T < end)
        if mark_T.sum() < sum(sizes[start:end]):
            hint = "increase max_length, or drop such samples with a Filter"
            raise AlchemyError(f"{title(self)}: {name} = [{start}, {end}] was truncated", hint=hint)
        return mark_T.astype(np.int64)


@DataPipeline.register()
class Encode(Texts, _ByIndex, LstDataPipeline):
    """Tokenizes the text in `field`, and in `pair` if it is set; adds ids as `to` and segment ids as `segments`.

    `tokenizer` is a folder, or a table such as `{ type = "alchemy.text.Words", vocab = "vocab.txt" }`. `template`
    places the special tokens: `"bos $A eos"`, `"[CLS] $A [SEP] $B:1 [SEP]:1"`. `spans = { spans = "tokens" }` converts
    `[start, end, label]` spans from characters of the text to token positions.
    """


@DataPipeline.register()
class EncodeWords(Wordwise, _ByIndex, LstDataPipeline):
    """Tokenizes each word in `field` separately, so that every token can be traced back to its word.

    `align = { tag_ids = "labels" }` assigns the tag of a word to its first token and `ignore` to its other tokens;
    `marks = { e1_tokens = "e1_mask" }` converts a `[start, end]` range of words to a 0/1 mask over the tokens.
    """


@DataPipeline.register()
class EncodeStream(Texts, _Streamed, ItrDataPipeline):
    """Streaming version of Encode."""


@DataPipeline.register()
class EncodeWordsStream(Wordwise, _Streamed, ItrDataPipeline):
    """Streaming version of EncodeWords."""


def check_index(pipe: object, datapipe: Any) -> Any:
    """Return `datapipe`; raise if a map-style pipe would read from a stream."""
    streams = isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__")
    if streams and isinstance(pipe, LstDataPipeline):
        hint = f"put alchemy.pipeline.lst.ItrToLst before it, or use {title(pipe)}Stream"
        raise AlchemyError(f"{type(pipe).__name__} needs indexable data, got the stream {title(datapipe)}", hint=hint)
    return datapipe


def enumerate_samples(datapipe: Any) -> Iterator[tuple[int, Any]]:
    """Yield the samples of a stream with indices that are unique across workers."""
    splitter = next((link for link in walk(datapipe) if isinstance(link, DataPipeline) and link.splits), None)
    reader, readers = (0, 1) if splitter is None else reader_share(splitter)
    return zip(itertools.count(reader, readers), datapipe)


def _list_fields(parameter: str, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the list fields named by the keys of a parameter, in the form that `declare` expects."""
    return {f"the key {name} of {parameter}": (name, "list") for name in names}


def _declared_fields(link: object) -> Mapping[str, str] | None:
    """Return the fields that a pipe declares or passes through."""
    while isinstance(link, DataPipeline) and link.gives is None and link.keeps:
        link = link.datapipe
    return link.gives if isinstance(link, DataPipeline) else None


def _field_exists(name: str, by: str) -> AlchemyError:
    hint = "choose a different name for the new field, or rename the old one with alchemy.pipeline.itr.Fields"
    return AlchemyError(f"{by} would replace the existing field {name!r}", hint=hint)


def _as_int64(values: object) -> np.ndarray | None:
    """Return the values as int64, or None if they are not integers; `ignore` could overflow narrower types."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return None
    whole = array.astype(np.int64) if array.dtype.kind in "iub" or not array.size else None
    return whole if whole is not None and (whole == array).all() else None
