"""Texts become ids: the pipes that apply a tokenizer, and say of the tokens what was said of the words."""

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
    """A field that a pipe makes: the parameter that names it, its name, its padding; most have a number for a token."""

    parameter: str
    name: str
    pad: int | None
    kind: str = "int64"


class FieldMaker:
    """A pipe that gives samples new fields, and never replaces one that they have; a base beside DataPipeline."""

    datapipe: Any
    takes: Mapping[str, str] | None
    gives: Mapping[str, str] | None
    makes: list[MadeField]

    def declare(self, takes: Mapping[str, tuple[str, str]], makes: list[MadeField]) -> None:
        """Tells which fields are taken, with their kinds, by the parameters that name them; and which are made."""
        named = {name: parameter for parameter, (name, _) in takes.items()}
        before = _given_by(self.datapipe)
        for parameter, name, *_ in makes:
            if name in named or not name:
                twice = f"{named.get(name)} and {parameter} both name the field {name!r}"
                hint = "each field that is made needs a name of its own"
                raise AlchemyError(twice if name else f"{parameter} is empty", hint=hint)
            if name in (before or ()):
                raise _taken(name, f"{parameter} = {name!r}")
            named[name] = parameter
        self.makes, self.takes = makes, dict(takes.values())
        if before is not None:  # else nobody can tell which fields a sample has besides those that are made here
            self.gives = {**before, **{made.name: made.kind for made in makes}}

    def pads(self) -> dict[str, int]:
        """What rows of the fields that are made here are filled up with."""
        return {made.name: made.pad for made in self.makes if made.pad is not None}

    def extended(self, sample: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
        """A sample with the fields that were made of it, none of which it had."""
        twice = made.keys() & sample.keys()
        if twice:
            raise _taken(min(twice), title(self))
        return {**sample, **made}


class _Encoder(FieldMaker):
    """What Encode and EncodeWords have in common: a tokenizer, and a template in which its ids are placed."""

    tokenizer: Tokenizer
    places: Template
    to: str
    max_length: int

    def encoded(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """A sample with the ids of its text; the sample itself is left as it was."""
        raise NotImplementedError

    def told(self, sample: Mapping[str, Any], where: Callable[[], str]) -> dict[str, Any]:
        """An encoded sample; an error says which it was."""
        try:
            return self.encoded(sample)
        except AlchemyError as error:
            raise AlchemyError(f"{where()}: {error.problem.message}", hint=error.problem.hint) from error


class _ByIndex(_Encoder):
    """The form for data with an index."""

    where = where_before

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.told(self.datapipe[index], lambda: self.where(index))

    def __len__(self) -> int:
        return len(self.datapipe)


class _Streamed(_Encoder):
    """The form for streams."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number, sample in enumerate_samples(self.datapipe):
            yield self.told(sample, f"sample {number}".__str__)

    def __len__(self) -> int:
        return length_of(self)


class Texts(_Encoder, DataPipeline):
    """What both forms of Encode are given, and what they do to a sample."""

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
        super().__init__(with_index(self, datapipe))
        self.field, self.to, self.pair, self.segments = field, to, pair, segments
        self.template, self.max_length, self.long, self.spans = template, max_length, long, spans
        self.tokenizer = tokenizer_of(tokenizer)
        self.digest = tokenizer_digest(self.tokenizer)  # with another one there are other samples
        if spans:
            self.tokenizer.offsets("")  # an error where it cannot tell
        takes = {"field": (field, "str"), **({"pair": (pair, "str")} if pair else {}), **_keys("spans", spans)}
        makes = [MadeField("to", to, self.tokenizer.pad), *([MadeField("segments", segments, 0)] if segments else [])]
        makes += [MadeField(f"spans.{name}", made, None, "list") for name, made in spans.items()]
        self.declare(takes, makes)
        self.places = Template(self.tokenizer, template, pair=bool(pair), max_length=max_length, long=long)
        keep_tokenizer(self.tokenizer, to, str(tokenizer))

    def padding(self) -> dict[str, int]:
        return super().padding() | self.pads()

    def encoded(self, sample: Mapping[str, Any]) -> dict[str, Any]:
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
        return self.extended(sample, made)

    def _text(self, sample: Mapping[str, Any], name: str) -> str:
        text = field_of(sample, name, self)
        if isinstance(text, str):
            return text
        hint = "lists of words are encoded by EncodeWords" if isinstance(text, list) else ""
        raise AlchemyError(f"{title(self)}: the field {name!r} is {repr(text)[:60]}, which is no text", hint=hint)


class Wordwise(_Encoder, DataPipeline):
    """What both forms of EncodeWords are given, and what they do to a sample."""

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
        super().__init__(with_index(self, datapipe))
        self.field, self.to, self.segments = field, to, segments
        self.template, self.max_length, self.long = template, max_length, long
        self.blank, self.words, self.align, self.ignore, self.marks = blank, words, align, ignore, marks
        if type(ignore) is not int:
            raise AlchemyError(f"ignore must be a whole number, not {ignore!r}")
        self.tokenizer = tokenizer_of(tokenizer)
        self.digest = tokenizer_digest(self.tokenizer)  # with another one there are other samples
        makes = [MadeField("to", to, self.tokenizer.pad), *([MadeField("segments", segments, 0)] if segments else [])]
        makes += [MadeField("words", words, -1)] if words else []
        makes += [MadeField(f"align.{name}", made, ignore) for name, made in align.items()]
        makes += [MadeField(f"marks.{name}", made, 0) for name, made in marks.items()]
        self.declare({"field": (field, "list"), **_keys("align", align), **_keys("marks", marks)}, makes)
        self.places = Template(self.tokenizer, template, max_length=max_length, long=long, cuts=("only_first",))
        keep_tokenizer(self.tokenizer, to, str(tokenizer))

    def padding(self) -> dict[str, int]:
        return super().padding() | self.pads()

    def encoded(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        words = field_of(sample, self.field, self)
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            text = f"{title(self)}: the field {self.field!r} is {str(words)[:40]!r}"
            raise AlchemyError(text, hint="it must be a list of words; a text is for alchemy.pipeline.encode.Encode")
        pieces = [self._pieces(number, word) for number, word in enumerate(words)]
        row = self.places({"$A": list(itertools.chain.from_iterable(pieces))})
        sizes = list(map(len, pieces))
        of_word = np.repeat(np.arange(len(sizes)), sizes)
        word_T = np.full(len(row.ids), -1)
        word_T[row.own] = of_word[: row.own.sum()]
        made = {self.to: row.ids, **({self.segments: row.segments} if self.segments else {})}
        made |= {self.words: word_T} if self.words else {}
        made |= {to: self._aligned(sample, name, word_T, len(sizes)) for name, to in self.align.items()}
        made |= {to: self._mark(sample, name, word_T, sizes) for name, to in self.marks.items()}
        return self.extended(sample, made)

    def _pieces(self, number: int, word: str) -> list[int]:
        pieces = self.tokenizer.encode(f" {word}" if self.blank and number else word)
        if pieces:
            return pieces
        if self.tokenizer.unk is None:
            text = f"{title(self)}: the tokenizer leaves nothing of word {number}, {word!r}, and knows no unknown one"
            raise AlchemyError(text, hint="leave it out, or change it, in a pipe before")
        return [self.tokenizer.unk]  # a word that is dropped keeps its place, and its tag

    def _aligned(self, sample: Mapping[str, Any], name: str, word_T: np.ndarray, count: int) -> np.ndarray:
        """A number for each token: that of its word for the first of a word, `ignore` for all others."""
        values = _whole_numbers(field_of(sample, name, self))
        if values is None or values.shape != (count,):
            told = f"the shape {values.shape}" if values is not None else "anything but whole numbers"
            text = f"{title(self)}: the field {name!r} has {told}, and there are {count} words"
            raise AlchemyError(text, hint="it must hold one whole number for each word")
        first_T = (word_T >= 0) & (word_T != np.concatenate(([-1], word_T[:-1])))
        return np.where(first_T, values[word_T], self.ignore) if count else np.full(len(word_T), self.ignore)

    def _mark(self, sample: Mapping[str, Any], name: str, word_T: np.ndarray, sizes: list[int]) -> np.ndarray:
        """Ones for the tokens of the words `[start, end)`, zeros for all others."""
        mark = field_of(sample, name, self)
        whole = isinstance(mark, list | tuple) and len(mark) == 2 and {type(place) for place in mark} == {int}
        if not whole or not 0 <= mark[0] < mark[1] <= len(sizes):
            hint = "it must be [start, end] in words, the end not included"
            raise AlchemyError(f"{title(self)}: {name} is {mark!r}, and there are {len(sizes)} words", hint=hint)
        start, end = mark
        mark_T = (word_T >= start) & (word_T < end)
        if mark_T.sum() < sum(sizes[start:end]):
            hint = "set a larger max_length, or leave such samples out with a Filter"
            raise AlchemyError(f"{title(self)}: {name} = [{start}, {end}] lies beyond the end of the row", hint=hint)
        return mark_T.astype(np.int64)


@DataPipeline.register()
class Encode(Texts, _ByIndex, LstDataPipeline):
    """The text in `field`, or with `pair` those of two fields, as ids in `to`, and their segments in `segments`.

    `tokenizer` is a folder, or a table such as `{ type = "alchemy.text.Words", vocab = "vocab.txt" }`. `template` tells
    where special tokens stand: `"bos $A eos"`, `"[CLS] $A [SEP] $B:1 [SEP]:1"`. `spans = { spans = "tokens" }` turns
    `[start, end, label]` in characters of the text into places of the row.
    """


@DataPipeline.register()
class EncodeWords(Wordwise, _ByIndex, LstDataPipeline):
    """The words in `field` as ids, each encoded by itself, so that it is known which token is of which word.

    `align = { tag_ids = "labels" }` gives the first token of a word its tag, and others `ignore`;
    `marks = { e1_tokens = "e1_mask" }` turns `[start, end]` in words into ones and zeros over the tokens.
    """


@DataPipeline.register()
class EncodeStream(Texts, _Streamed, ItrDataPipeline):
    """Encode for a stream."""


@DataPipeline.register()
class EncodeWordsStream(Wordwise, _Streamed, ItrDataPipeline):
    """EncodeWords for a stream."""


def with_index(pipe: object, datapipe: Any) -> Any:
    """The pipe before, which must have an index where this one has."""
    streams = isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__")
    if streams and isinstance(pipe, LstDataPipeline):
        hint = f"put alchemy.pipeline.lst.ItrToLst before it, or use {title(pipe)}Stream"
        raise AlchemyError(f"{type(pipe).__name__} needs data with an index, not {title(datapipe)}", hint=hint)
    return datapipe


def enumerate_samples(datapipe: Any) -> Iterator[tuple[int, Any]]:
    """The samples of a stream, each with a number that no other has, whichever worker reads it."""
    splitter = next((link for link in walk(datapipe) if isinstance(link, DataPipeline) and link.splits), None)
    reader, readers = (0, 1) if splitter is None else reader_share(splitter)
    return zip(itertools.count(reader, readers), datapipe)


def _keys(parameter: str, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The fields that the keys of a parameter name, all of them lists, for `declare`."""
    return {f"the key {name} of {parameter}": (name, "list") for name in names}


def _given_by(link: object) -> Mapping[str, str] | None:
    """The fields that a pipe declares, or hands on."""
    while isinstance(link, DataPipeline) and link.gives is None and link.keeps:
        link = link.datapipe
    return link.gives if isinstance(link, DataPipeline) else None


def _taken(name: str, by: str) -> AlchemyError:
    hint = "give the new field another name, or the old one with alchemy.pipeline.itr.Fields"
    return AlchemyError(f"{by} would replace the field {name!r} that samples have already", hint=hint)


def _whole_numbers(values: object) -> np.ndarray | None:
    """As int64, since `ignore` would wrap around in small or unsigned numbers; None where that is not what they are."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return None
    whole = array.astype(np.int64) if array.dtype.kind in "iub" or not array.size else None
    return whole if whole is not None and (whole == array).all() else None
