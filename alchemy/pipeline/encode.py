"""Texts become ids: the pipes that apply a tokenizer, and the special tokens that they put around a text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset

from alchemy.data.chain import title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline
from alchemy.pipeline.itr import field_of, length_of
from alchemy.pipeline.tokenizers import keep, known_as, tokenizer_of
from alchemy.text import Tokenizer
from alchemy.text.base import ROLES

__all__ = ["Encode", "EncodeStream", "EncodeWords", "EncodeWordsStream"]

CUTS = ("refuse", "longest_first", "only_first", "only_second")


class Slot(NamedTuple):
    """One word of a template: a text (`$A`, `$B`) or the id of a token, and the segment it belongs to."""

    text: str
    token: int | None
    segment: int


class Row(NamedTuple):
    """What a template makes: ids, their segments, and which of them are of the first text."""

    ids: np.ndarray
    segments: np.ndarray
    own: np.ndarray


class Template:
    """Where the special tokens stand around the ids of a text or two, and what is cut where all is too long."""

    def __init__(self, tokenizer: Tokenizer, *, template: str, pair: bool, max_length: int, long: str) -> None:
        self.max_length, self.long = max_length, long
        self.slots = [_slot(word, tokenizer) for word in (template or ("$A $B:1" if pair else "$A")).split()]
        self._check(pair)
        self.room = max_length - sum(slot.token is not None for slot in self.slots)
        if max_length and self.room < 1:
            raise AlchemyError(f"max_length = {max_length} leaves no room for a text between the special tokens")

    def __call__(self, rows: dict[str, list[int]]) -> Row:
        """Puts the ids of `$A`, and of `$B`, in their places."""
        if self.max_length and sum(map(len, rows.values())) > self.room:
            self._cut(rows)
        parts = [rows[slot.text] if slot.token is None else [slot.token] for slot in self.slots]
        ids = np.array([token for part in parts for token in part], np.int64)
        lengths = list(map(len, parts))
        segments = np.repeat([slot.segment for slot in self.slots], lengths)
        return Row(ids, segments, np.repeat([slot.text == "$A" and slot.token is None for slot in self.slots], lengths))

    def _cut(self, rows: dict[str, list[int]]) -> None:
        """Shortens the rows until all of them fit."""
        first, second = (len(rows.get(key, ())) for key in ("$A", "$B"))
        excess = first + second - self.room
        if self.long == "refuse":
            raise AlchemyError(
                f"a text has {self.max_length + excess} tokens, more than max_length = {self.max_length}",
                hint=f"set long to one of {', '.join(map(repr, CUTS[1:]))}, or a larger max_length",
            )
        lost = shares(first, second, excess) if self.long == "longest_first" else (excess, excess)
        for key, count in zip(("$A", "$B"), lost):
            if (self.long, key) in (("only_first", "$B"), ("only_second", "$A")) or key not in rows:
                continue
            if count > len(rows[key]):
                text = f"a text has {excess} tokens too many, and {key} only {len(rows[key])}: {self.long} cannot do"
                raise AlchemyError(text, hint='set long = "longest_first"')
            rows[key] = rows[key][: len(rows[key]) - count]

    def _check(self, pair: bool) -> None:
        words = [slot.text for slot in self.slots if slot.token is None]
        if sorted(words) != (["$A", "$B"] if pair else ["$A"]):
            hint = "it needs '$A', and '$B' where `pair` is given, once each: 'bos $A eos $B:1 eos:1'"
            raise AlchemyError(f"the template has the texts {', '.join(words) or 'none'}", hint=hint)
        if self.long not in CUTS:
            raise AlchemyError(f"long must be one of {', '.join(map(repr, CUTS))}, not {self.long!r}")
        if self.long == "only_second" and not pair:
            raise AlchemyError("long = 'only_second' needs a second text", hint="give `pair`, or cut 'only_first'")
        if self.max_length < 0 or (self.long != "refuse" and not self.max_length):
            raise AlchemyError(f"long = {self.long!r} needs a max_length, not {self.max_length}")


class Texts(DataPipeline):
    """What both forms of Encode are given, and what they do to a sample."""

    def __init__(
        self,
        datapipe: Any,
        *,
        tokenizer: str | Path | dict[str, Any],
        field: str = "text",
        to: str = "input_ids",
        pair: str = "",
        segments: str = "",
        template: str = "",
        max_length: int = 0,
        long: Literal["refuse", "longest_first", "only_first", "only_second"] = "refuse",
    ) -> None:
        super().__init__(checked(self, datapipe))
        self.field, self.to, self.pair, self.segments = field, to, pair, segments
        self.template, self.max_length, self.long = template, max_length, long
        self.tokenizer = tokenizer_of(tokenizer)
        self.places = Template(self.tokenizer, template=template, pair=bool(pair), max_length=max_length, long=long)
        keep(self.tokenizer, to)
        declare(self, takes={field: "str", pair: "str"}, gives=(to, segments))

    @property
    def digest(self) -> str:
        return known_as(self.tokenizer)

    def encoded(self, sample: Any) -> dict[str, Any]:
        """A sample with the ids of its text; the sample itself is left as it was."""
        rows = {"$A": self._ids(sample, self.field)}
        if self.pair:
            rows["$B"] = self._ids(sample, self.pair)
        row = self.places(rows)
        made = {**sample, self.to: row.ids}
        return {**made, self.segments: row.segments} if self.segments else made

    def _ids(self, sample: Any, name: str) -> list[int]:
        text = field_of(sample, name, self)
        if isinstance(text, str):
            return self.tokenizer.encode(text)
        hint = "lists of words are encoded by EncodeWords" if isinstance(text, list) else ""
        raise AlchemyError(f"{title(self)}: the field {name!r} is {text!r}, which is no text", hint=hint)


class Wordwise(DataPipeline):
    """What both forms of EncodeWords are given, and what they do to a sample."""

    def __init__(
        self,
        datapipe: Any,
        *,
        tokenizer: str | Path | dict[str, Any],
        field: str = "tokens",
        to: str = "input_ids",
        template: str = "",
        max_length: int = 0,
        long: Literal["refuse", "only_first"] = "refuse",
        blank: bool = False,
        words: str = "",
        align: dict[str, str] = {},
        ignore: int = -100,
        marks: dict[str, str] = {},
    ) -> None:
        super().__init__(checked(self, datapipe))
        self.field, self.to, self.template, self.max_length, self.long = field, to, template, max_length, long
        self.blank, self.words, self.align, self.ignore, self.marks = blank, words, align, ignore, marks
        self.tokenizer = tokenizer_of(tokenizer)
        self.places = Template(self.tokenizer, template=template, pair=False, max_length=max_length, long=long)
        keep(self.tokenizer, to)
        takes = dict.fromkeys((field, *align, *marks), "list")
        declare(self, takes=takes, gives=(to, words, *align.values(), *marks.values()))

    @property
    def digest(self) -> str:
        return known_as(self.tokenizer)

    def encoded(self, sample: Any) -> dict[str, Any]:
        """A sample with the ids of its words, and what was said of the words said of their tokens."""
        words = field_of(sample, self.field, self)
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            text = f"{title(self)}: the field {self.field!r} is {str(words)[:40]!r}"
            raise AlchemyError(text, hint="it must be a list of words; a text is for alchemy.pipeline.encode.Encode")
        pieces = [self._pieces(number, word) for number, word in enumerate(words)]
        row = self.places({"$A": list(itertools.chain.from_iterable(pieces))})
        of_word = np.repeat(np.arange(len(pieces)), list(map(len, pieces)))
        word_T = np.full(len(row.ids), -1)
        word_T[row.own] = of_word[: row.own.sum()]
        made = {self.to: row.ids, **({self.words: word_T} if self.words else {})}
        made |= {to: self._aligned(sample, name, word_T, len(pieces)) for name, to in self.align.items()}
        marks = {to: self._mark(sample, name, word_T, len(pieces)) for name, to in self.marks.items()}
        return {**sample, **made, **marks}

    def _pieces(self, number: int, word: str) -> list[int]:
        pieces = self.tokenizer.encode(f" {word}" if self.blank and number else word)
        # a word that the tokenizer drops keeps its place, and its tag
        return pieces or ([] if self.tokenizer.unk is None else [self.tokenizer.unk])

    def _aligned(self, sample: Any, name: str, word_T: np.ndarray, count: int) -> np.ndarray:
        """A number for each token: that of its word for the first of a word, `ignore` for all others."""
        values = np.asarray(field_of(sample, name, self))
        if values.shape != (count,) or (count and values.dtype.kind not in "iub"):
            text = f"{title(self)}: the field {name!r} has the shape {values.shape}, and there are {count} words"
            raise AlchemyError(text, hint="it must hold one whole number for each word")
        values = values.astype(np.int64)  # small or unsigned numbers would wrap `ignore` around
        first_T = (word_T >= 0) & (word_T != np.concatenate(([-1], word_T[:-1])))
        return np.where(first_T, values[word_T], self.ignore) if count else np.full(len(word_T), self.ignore)

    def _mark(self, sample: Any, name: str, word_T: np.ndarray, count: int) -> np.ndarray:
        """Ones for the tokens of the words `[start, end)`, zeros for all others."""
        mark = field_of(sample, name, self)
        whole = isinstance(mark, list | tuple) and len(mark) == 2 and {type(place) for place in mark} == {int}
        if not whole or not 0 <= mark[0] < mark[1] <= count:
            hint = "it must be [start, end] in words, the end not included"
            raise AlchemyError(f"{title(self)}: {name} is {mark!r}, and there are {count} words", hint=hint)
        start, end = mark
        if word_T.max(initial=-1) < end - 1:
            hint = "set a larger max_length, or leave such samples out with a Filter"
            raise AlchemyError(f"{title(self)}: {name} = [{start}, {end}] lies beyond the end of the row", hint=hint)
        return ((word_T >= start) & (word_T < end)).astype(np.int64)


@DataPipeline.register()
class Encode(Texts, LstDataPipeline):
    """The text in `field`, or with `pair` those of two fields, as ids in `to`, and their segments in `segments`.

    `tokenizer` is a folder, or a table such as `{ type = "alchemy.text.Words", vocab = "vocab.txt" }`. `template` tells
    where special tokens stand: `"bos $A eos"`, `"[CLS] $A [SEP] $B:1 [SEP]:1"`.
    """

    def __getitem__(self, index: int) -> Any:
        return self.encoded(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class EncodeWords(Wordwise, LstDataPipeline):
    """The words in `field` as ids, each encoded by itself, so that it is known which token is of which word.

    `align = { tag_ids = "labels" }` gives the first token of a word its tag, and others `ignore`;
    `marks = { e1_tokens = "e1_mask" }` turns `[start, end]` in words into ones and zeros over the tokens.
    """

    def __getitem__(self, index: int) -> Any:
        return self.encoded(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@DataPipeline.register()
class EncodeStream(Texts, ItrDataPipeline):
    """Encode for a stream."""

    def __iter__(self) -> Iterator[Any]:
        return map(self.encoded, self.datapipe)

    def __len__(self) -> int:
        return length_of(self)


@DataPipeline.register()
class EncodeWordsStream(Wordwise, ItrDataPipeline):
    """EncodeWords for a stream."""

    def __iter__(self) -> Iterator[Any]:
        return map(self.encoded, self.datapipe)

    def __len__(self) -> int:
        return length_of(self)


def checked(pipe: Any, datapipe: Any) -> Any:
    """The pipe before, which must have an index where this one has."""
    if isinstance(pipe, LstDataPipeline) and (
        isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__")
    ):
        name = type(pipe).__name__
        hint = f"put alchemy.pipeline.lst.ItrToLst before it, or use alchemy.pipeline.encode.{name}Stream"
        raise AlchemyError(f"{name} needs data with an index, not {title(datapipe)}", hint=hint)
    return datapipe


def shares(first: int, second: int, excess: int) -> tuple[int, int]:
    """How many tokens two texts lose: the longer one until they are equal, then both; as transformers does it.

    >>> shares(5, 2, 2), shares(5, 2, 4), shares(2, 5, 4), shares(3, 3, 3)
    ((2, 0), (3, 1), (1, 3), (2, 1))
    """
    longer = min(abs(first - second), excess)
    rest = excess - longer
    # where an odd number is left to lose, the text that was shorter loses one more
    return (longer + rest // 2, rest - rest // 2) if first > second else (rest - rest // 2, longer + rest // 2)


def declare(pipe: Any, *, takes: Mapping[str, str], gives: Iterable[str]) -> None:
    """Lets a pipe say which fields it takes and gives; a field without a name is none."""
    pipe.takes = {name: kind for name, kind in takes.items() if name}
    before = _given_by(pipe.datapipe)
    if before is not None:  # else nobody can tell which fields a sample has besides those that are made here
        pipe.gives = {**before, **{name: "int64" for name in gives if name}}


def _given_by(pipe: Any) -> Mapping[str, str] | None:
    """The fields that a pipe declares, or hands on."""
    gives = getattr(pipe, "gives", None)
    return gives if gives is not None or not getattr(pipe, "keeps", False) else _given_by(pipe.datapipe)


def _slot(word: str, tokenizer: Tokenizer) -> Slot:
    name, colon, segment = word.rpartition(":")
    if not (colon and name and segment.isdecimal()):
        name, segment = word, "0"
    if name in ("$A", "$B"):
        return Slot(name, None, int(segment))
    token = getattr(tokenizer, name) if name in ROLES else tokenizer.id_of(name)
    if token is None:
        there = ", ".join(role for role in ROLES if getattr(tokenizer, role) is not None)
        raise AlchemyError(
            f"the template names {name!r}, which {type(tokenizer).__name__} does not have",
            hint=f"write a token as the tokenizer spells it, or one of {there}; the text is $A",
        )
    return Slot(name, token, int(segment))
