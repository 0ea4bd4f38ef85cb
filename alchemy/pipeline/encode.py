"""Texts become ids: the pipes that apply a tokenizer, and the special tokens that they put around a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.context import sym_tbl
from alchemy.data.chain import title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline
from alchemy.pipeline.itr import field_of, length_of
from alchemy.records.tokenizers import tokenizer_folder
from alchemy.registry import build
from alchemy.text import Tokenizer, load_tokenizer
from alchemy.text.base import ROLES

__all__ = ["Encode", "EncodeStream"]

CUTS = ("refuse", "longest_first", "only_first", "only_second")


class Slot(NamedTuple):
    """One word of a template: a text (`$A`, `$B`) or the id of a token, and the segment it belongs to."""

    text: str
    token: int | None
    segment: int


class Encoder:
    """A tokenizer, and what it makes of the texts of a sample."""

    def __init__(self, tokenizer: Tokenizer, *, template: str, pair: bool, max_length: int, long: str) -> None:
        self.tokenizer, self.max_length, self.long = tokenizer, max_length, long
        self.slots = [_slot(word, tokenizer) for word in (template or ("$A $B:1" if pair else "$A")).split()]
        self._check(pair)
        self.room = max_length - sum(slot.token is not None for slot in self.slots)
        if max_length and self.room < 1:
            raise AlchemyError(f"max_length = {max_length} leaves no room for a text between the special tokens")

    def __call__(self, text: str, second: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Ids and segments of a text, or of a pair."""
        rows = {"$A": self.tokenizer.encode(text)}
        if second is not None:
            rows["$B"] = self.tokenizer.encode(second)
        if self.max_length and sum(map(len, rows.values())) > self.room:
            self._cut(rows)
        parts = [rows[slot.text] if slot.token is None else [slot.token] for slot in self.slots]
        ids = np.array([token for part in parts for token in part], np.int64)
        return ids, np.repeat([slot.segment for slot in self.slots], list(map(len, parts)))

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


class Encoding(DataPipeline):
    """What both pipes are given, and what they do to a sample."""

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
        super().__init__(datapipe)
        self.check_source(datapipe)
        self.field, self.to, self.pair, self.segments = field, to, pair, segments
        self.template, self.max_length, self.long = template, max_length, long
        self.tokenizer = tokenizer_of(tokenizer)
        self.encoder = Encoder(self.tokenizer, template=template, pair=bool(pair), max_length=max_length, long=long)
        keep(self.tokenizer, to)
        self.takes = {name: "str" for name in (field, pair) if name}  # type: ignore[misc]
        before = _given_by(datapipe)
        if before is not None:  # else nobody can tell which fields a sample has besides those that are made here
            self.gives = {**before, **{name: "int64" for name in (to, segments) if name}}  # type: ignore[misc]

    def check_source(self, datapipe: Any) -> None:
        """An error where the pipe before is of the wrong kind."""

    def encoded(self, sample: Any) -> dict[str, Any]:
        """A sample with the ids of its text; the sample itself is left as it was."""
        second = self._text(sample, self.pair) if self.pair else None
        ids, segments = self.encoder(self._text(sample, self.field), second)
        made = {**sample, self.to: ids}
        return {**made, self.segments: segments} if self.segments else made

    def _text(self, sample: Any, name: str) -> str:
        text = field_of(sample, name, self)
        if not isinstance(text, str):
            raise AlchemyError(f"{title(self)}: the field {name!r} is {text!r}, which is no text")
        return text


@DataPipeline.register()
class Encode(Encoding, LstDataPipeline):
    """The text in `field`, or with `pair` those of two fields, as ids in `to`, and their segments in `segments`.

    `tokenizer` is a folder, or a table such as `{ type = "alchemy.text.Words", vocab = "vocab.txt" }`. `template` tells
    where special tokens stand: `"bos $A eos"`, `"[CLS] $A [SEP] $B:1 [SEP]:1"`.
    """

    def __getitem__(self, index: int) -> Any:
        return self.encoded(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)

    def check_source(self, datapipe: Any) -> None:
        if isinstance(datapipe, IterableDataset) or not hasattr(datapipe, "__getitem__"):
            hint = "put alchemy.pipeline.lst.ItrToLst before it, or use alchemy.pipeline.encode.EncodeStream"
            raise AlchemyError(f"Encode needs data with an index, not {title(datapipe)}", hint=hint)


@DataPipeline.register()
class EncodeStream(Encoding, ItrDataPipeline):
    """The same for a stream."""

    def __iter__(self) -> Iterator[Any]:
        return map(self.encoded, self.datapipe)

    def __len__(self) -> int:
        return length_of(self)


def shares(first: int, second: int, excess: int) -> tuple[int, int]:
    """How many tokens two texts lose when the longer one loses each time, the second where they are equal.

    >>> shares(5, 2, 2), shares(5, 2, 4), shares(2, 5, 4), shares(3, 3, 3)
    ((2, 0), (3, 1), (0, 4), (1, 2))
    """
    from_longer = min(abs(first - second), excess)
    rest = excess - from_longer
    longer = (from_longer, 0) if first > second else (0, from_longer)
    return longer[0] + rest // 2, longer[1] + rest - rest // 2


def tokenizer_of(spec: Any) -> Tokenizer:
    """The tokenizer that a config means: a folder, or a table with a `type`."""
    if isinstance(spec, Tokenizer):
        return spec
    if isinstance(spec, str | Path):
        return load_tokenizer(Path(spec).expanduser())
    tokenizer: Tokenizer = build(Tokenizer, spec, section="tokenizer")
    return tokenizer


def keep(tokenizer: Tokenizer, field: str) -> None:
    """Puts a copy into the record of the current run, with which ids of its model can be read for ever."""
    record = sym_tbl().record_dir
    if record is None:
        return
    folder = tokenizer_folder(record, field)
    try:
        if not folder.exists():
            tokenizer.save(folder)
        elif load_tokenizer(folder).digest != tokenizer.digest:
            text = "the tokenizer of {!r} is another than the one in {}: it may give other ids to the same text"
            logger.warning(text, field, folder)
    except NotImplementedError:
        logger.warning("{} cannot be saved in the record: it defines no options() and contents()", title(tokenizer))


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
