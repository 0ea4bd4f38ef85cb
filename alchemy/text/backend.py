"""Adapters from the tokenizers and sentencepiece packages to the `Tokenizer` interface."""

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

# lines per call: the backend's results are large, and small blocks stay in the CPU cache
BLOCK = 512


class _Backend(Protocol):
    """Interface of a tokenizer backend."""

    size: int
    hidden: frozenset[int]  # ids of special tokens

    def encode(self, lines: Sequence[str]) -> list[list[int]]: ...

    def offsets(self, text: str) -> Located | None: ...  # None if not supported

    def decode(self, ids: list[int]) -> str: ...

    def id_of(self, symbol: str) -> int | None: ...


class Rust:
    """Backend that uses the Rust-based tokenizers package."""

    def __init__(self, inner: Any, parse_specials: bool = False) -> None:
        self.inner, self.parse_specials = inner, parse_specials
        inner.no_truncation()  # a saved tokenizer may contain truncation and padding settings
        inner.no_padding()
        inner.encode_special_tokens = not parse_specials
        self.size = max(inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.hidden = frozenset(i for i, token in inner.get_added_tokens_decoder().items() if token.special)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [row.ids for row in self.inner.encode_batch_fast(lines, add_special_tokens=False)]

    def offsets(self, text: str) -> Located:
        row = self.inner.encode(text, add_special_tokens=False)
        return row.ids, [_trim_span(text, *place) for place in row.offsets]

    def decode(self, ids: list[int]) -> str:
        return self.inner.decode(ids, skip_special_tokens=False)

    def id_of(self, symbol: str) -> int | None:
        return self.inner.token_to_id(symbol)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rust, (self.inner, self.parse_specials)  # the pickle of `inner` does not include the settings above


class Spm:
    """Backend that uses sentencepiece; `clean` preprocesses the text."""

    def __init__(self, model: bytes, name: str, clean: TextCleaner | None = None) -> None:
        self.processor = import_package("sentencepiece", "SentencePiece").SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise AlchemyError("not a sentencepiece model", where=name) from error
        self.clean, self.size = clean, self.processor.get_piece_size()
        self.hidden = frozenset(i for i in range(self.size) if self.processor.is_control(i))
        ids = (self.processor.pad_id(), self.processor.bos_id(), self.processor.eos_id(), self.processor.unk_id())
        self.specials = {role: place for role, place in zip(ROLES, ids) if place >= 0}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        texts = list(lines) if self.clean is None else list(map(self.clean, lines))
        return self.processor.encode(texts, out_type=int, num_threads=1)

    def offsets(self, text: str) -> None:
        """Return None: the normalizer does not keep the positions of pieces."""

    def decode(self, ids: list[int]) -> str:
        return self.processor.decode(ids)

    def id_of(self, symbol: str) -> int | None:
        place: int = self.processor.piece_to_id(symbol)  # the id of <unk> if the symbol is unknown
        return place if self.processor.id_to_piece(place) == symbol else None


@dataclass(frozen=True)
class TextCleaner:
    """Text preprocessing of ALBERT and XLNet before sentencepiece."""

    lower: bool
    keep_accents: bool = False

    def __call__(self, text: str) -> str:
        text = " ".join(text.split()).replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
        return text.lower() if self.lower else text


class BackendTokenizer(Tokenizer):
    """Base class for tokenizers that delegate to a backend."""

    def __init__(self, backend: _Backend, specials: Mapping[str, int], multiple: int) -> None:
        self.backend, self.multiple = backend, multiple
        self.size = backend.size + -backend.size % check_multiple(multiple)
        self.pad, self.bos, self.eos, self.unk = (specials.get(role) for role in ROLES)
        self.hidden = (backend.hidden - {self.unk}) | frozenset(range(backend.size, self.size))

    def encode(self, text: str) -> list[int]:
        return self._encode_rows([text])[0]

    def offsets(self, text: str) -> Located:
        return self.backend.offsets(check_utf8(type(self).__name__, text)) or super().offsets(text)

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        starts = range(0, max(len(lines), 1), BLOCK)
        blocks = [flatten(self._encode_rows(lines[start : start + BLOCK])) for start in starts]
        ids, lengths = zip(*blocks)
        return np.concatenate(ids), np.concatenate(lengths)

    def join(self, ids: list[int]) -> str:
        return self.backend.decode(ids)

    def id_of(self, symbol: str) -> int | None:
        return self.backend.id_of(symbol) if _is_utf8(symbol) else None

    def _encode_rows(self, lines: Sequence[str]) -> list[list[int]]:
        try:
            return self.backend.encode(lines)
        except TypeError as error:
            wrong = [line for line in lines if not _is_utf8(line)]
            if not wrong:
                raise
            raise utf8_error(type(self).__name__, wrong[0]) from error


def _trim_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Exclude surrounding spaces from the span of a token, because byte-level tokens may start with one."""
    start = end - len(text[start:end].lstrip(" "))
    return start, start + len(text[start:end].rstrip(" "))


def utf8_error(name: str, what: object) -> AlchemyError:
    """Return the error for input that is not a string or contains a lone surrogate."""
    if isinstance(what, str):
        at = next((place for place, sign in enumerate(what) if "\ud800" <= sign <= "\udfff"), 0)
        what = what[max(at - 20, 0) : at + 20]  # a line may be very long
    hint = "lone surrogates cannot be encoded: read files with errors='strict' or 'replace'"
    return AlchemyError(f"{name} requires text that can be encoded as UTF-8, got {what!r}", hint=hint)


def check_utf8(name: str, line: str) -> str:
    """Return the line, or raise an error if it cannot be encoded as UTF-8."""
    if not _is_utf8(line):
        raise utf8_error(name, line)
    return line


def _is_utf8(line: Any) -> bool:
    try:
        str.encode(line, "utf-8")
    except (TypeError, UnicodeEncodeError):
        return False
    return True
