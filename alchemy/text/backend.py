"""Tokenizers that are programs of others: what tokenizers and sentencepiece do, under our contract."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package
from alchemy.text.base import ROLES, Encoded, Located, Tokenizer, flatten
from alchemy.text.vocab import check_multiple

# lines handed over at once: what they become on the other side is large, and small blocks stay in the cache
BLOCK = 512


class _Backend(Protocol):
    """What is asked of the program."""

    size: int
    hidden: frozenset[int]  # ids of special tokens

    def encode(self, lines: Sequence[str]) -> list[list[int]]: ...

    def offsets(self, text: str) -> Located | None: ...  # None: it cannot tell

    def decode(self, ids: list[int]) -> str: ...

    def id_of(self, symbol: str) -> int | None: ...


class Rust:
    """A tokenizer of the package tokenizers."""

    def __init__(self, inner: Any, parse_specials: bool = False) -> None:
        self.inner, self.parse_specials = inner, parse_specials
        inner.no_truncation()  # a file may hold what somebody has set for his batches
        inner.no_padding()
        inner.encode_special_tokens = not parse_specials
        self.size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.hidden = frozenset(i for i, token in inner.get_added_tokens_decoder().items() if token.special)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [row.ids for row in self.inner.encode_batch_fast(lines, add_special_tokens=False)]

    def offsets(self, text: str) -> Located:
        row = self.inner.encode(text, add_special_tokens=False)
        return row.ids, [_trimmed(text, *place) for place in row.offsets]

    def decode(self, ids: list[int]) -> str:
        return self.inner.decode(ids, skip_special_tokens=False)

    def id_of(self, symbol: str) -> int | None:
        return self.inner.token_to_id(symbol)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rust, (self.inner, self.parse_specials)  # what was set above is no part of its pickle


class Spm:
    """A model of sentencepiece; `tidy` is done to a text before."""

    def __init__(self, model: bytes, name: str, tidy: Tidy | None = None) -> None:
        self.processor = import_package("sentencepiece", "SentencePiece").SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise AlchemyError("it is no model of sentencepiece", where=name) from error
        self.tidy, self.size = tidy, self.processor.get_piece_size()
        self.hidden = frozenset(i for i in range(self.size) if self.processor.is_control(i))
        ids = (self.processor.pad_id(), self.processor.bos_id(), self.processor.eos_id(), self.processor.unk_id())
        self.specials = {role: place for role, place in zip(ROLES, ids) if place >= 0}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        texts = list(lines) if self.tidy is None else list(map(self.tidy, lines))
        return self.processor.encode(texts, out_type=int, num_threads=1)

    def offsets(self, text: str) -> None:
        """Its normalizer does not say where a piece was."""

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def id_of(self, symbol: str) -> int | None:
        place: int = self.processor.piece_to_id(symbol)  # that of <unk> for any other
        return place if self.processor.id_to_piece(place) == symbol else None


@dataclass(frozen=True)
class Tidy:
    """What ALBERT and XLNet do to a text before sentencepiece sees it."""

    lower: bool
    keep_accents: bool = False

    def __call__(self, text: str) -> str:
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
        return text.lower() if self.lower else text


class Backed(Tokenizer):
    """A tokenizer that hands its work to another program."""

    def __init__(self, backend: _Backend, specials: Mapping[str, int], multiple: int) -> None:
        self.backend, self.multiple = backend, multiple
        self.size = backend.size + -backend.size % check_multiple(multiple)
        self.pad, self.bos, self.eos, self.unk = (specials.get(role) for role in ROLES)
        self.hidden = (backend.hidden - {self.unk}) | frozenset(range(backend.size, self.size))

    def encode(self, text: str) -> list[int]:
        return self._rows([text])[0]

    def offsets(self, text: str) -> Located:
        return self.backend.offsets(check_utf8(type(self).__name__, text)) or super().offsets(text)

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        starts = range(0, max(len(lines), 1), BLOCK)
        blocks = [flatten(self._rows(lines[start : start + BLOCK])) for start in starts]
        ids, lengths = zip(*blocks)
        return np.concatenate(ids), np.concatenate(lengths)

    def join(self, ids: list[int]) -> str:
        return self.backend.decode(ids)

    def id_of(self, symbol: str) -> int | None:
        return self.backend.id_of(symbol) if _is_utf8(symbol) else None

    def _rows(self, lines: Sequence[str]) -> list[list[int]]:
        try:
            return self.backend.encode(lines)
        except TypeError as error:
            wrong = [line for line in lines if not _is_utf8(line)]
            if not wrong:
                raise
            raise no_utf8(type(self).__name__, wrong[0]) from error


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of a token without the blanks that byte-level ones begin with: not every file asks for that itself."""
    start = end - len(text[start:end].lstrip(" "))
    return start, start + len(text[start:end].rstrip(" "))


def no_utf8(name: str, what: object) -> AlchemyError:
    """The error of a tokenizer that was given half a character, or no text at all."""
    if isinstance(what, str):
        at = next((place for place, sign in enumerate(what) if "\ud800" <= sign <= "\udfff"), 0)
        what = what[max(at - 20, 0) : at + 20]  # a line may be a whole book
    hint = "a lone surrogate cannot: read files with errors='strict' or 'replace'"
    return AlchemyError(f"{name} takes text that can be written as UTF-8, not {what!r}", hint=hint)


def check_utf8(name: str, line: str) -> str:
    """A line that a tokenizer can be given."""
    if not _is_utf8(line):
        raise no_utf8(name, line)
    return line


def _is_utf8(line: Any) -> bool:
    try:
        str.encode(line, "utf-8")
    except (TypeError, UnicodeEncodeError):
        return False
    return True
