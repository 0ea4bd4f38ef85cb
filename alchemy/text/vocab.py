"""Vocabularies: symbols in the order of their ids, with their frequencies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from alchemy.errors import AlchemyError
from alchemy.text.base import read_content

# role and spelling of the special tokens, in the order of their ids
SPECIALS = {"pad": "<pad>", "bos": "<bos>", "eos": "<eos>", "unk": "<unk>"}

# escaped in files: whitespace, lone surrogates, and text that looks like an escape sequence
_ESCAPED = re.compile(r"[\s\ud800-\udfff]|<(?=U\+[0-9A-F]{4,6}>)")
_ESCAPE = re.compile(r"<U\+([0-9A-F]{4,6})>")


class _Lookup(dict[str, int]):
    """A mapping from symbols to ids; unknown symbols get the id of `unk`."""

    unknown: int | None = None

    def __missing__(self, symbol: str) -> int:
        if self.unknown is None:
            raise AlchemyError(
                f"{symbol!r} is not in the vocabulary, which has no symbol for unknown tokens",
                hint="add 'unk' to `specials`, or remove such text",
            )
        return self.unknown


class Vocabulary:
    """Symbols in the order of their ids. Missing special symbols are added at the front.

    >>> vocab = Vocabulary.from_counts({"the": 9, "a": 9, "zebra": 1}, min_frequency=2, multiple=4)
    >>> vocab.symbols
    ['<pad>', '<bos>', '<eos>', '<unk>', 'a', 'the', '<unused0>', '<unused1>']
    >>> vocab.ids["the"], vocab.ids["zebra"], vocab.special("eos")
    (5, 3, 2)
    """

    def __init__(
        self, symbols: Sequence[str], counts: Sequence[int] = (), *, specials: Mapping[str, str] = SPECIALS
    ) -> None:
        counts = counts or [0] * len(symbols)
        present = set(symbols)
        missing = [symbol for symbol in dict.fromkeys(specials.values()) if symbol not in present]
        self.symbols = [*missing, *symbols]
        self.counts = [0] * len(missing) + list(counts)
        self.specials = dict(specials)
        self.places = {symbol: place for place, symbol in enumerate(self.symbols)}
        if len(self.counts) != len(self.symbols):
            raise AlchemyError(f"got {len(symbols)} symbols and {len(counts)} counts", hint="pass one count per symbol")
        if len(self.places) != len(self.symbols) or "" in self.places:
            raise AlchemyError("a symbol of the vocabulary is empty or duplicated")
        # text is never parsed as a special token
        reserved = set(specials.values())
        self.ids = _Lookup((symbol, place) for symbol, place in self.places.items() if symbol not in reserved)
        self.ids.unknown = self.special("unk")

    def __len__(self) -> int:
        return len(self.symbols)

    def special(self, role: str) -> int | None:
        """Return the id of the special symbol for a role, or None."""
        return self.places[self.specials[role]] if role in self.specials else None

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        min_frequency: int = 1,
        size: int | None = None,
        multiple: int = 1,
        specials: Mapping[str, str] | None = None,
    ) -> Vocabulary:
        """Build a vocabulary of the most frequent symbols, independent of the order of `counts`.

        Ties are broken by spelling. `size` is the maximum number of symbols, including special ones, before the
        vocabulary is padded to a multiple of `multiple`.
        """
        specials = SPECIALS if specials is None else specials
        reserved = list(dict.fromkeys(specials.values()))
        if size is not None and size < len(reserved):
            raise AlchemyError(f"size = {size} leaves no room for {len(reserved)} special symbols")
        kept = sorted(symbol for symbol, count in counts.items() if count >= min_frequency and symbol not in reserved)
        kept.sort(key=counts.__getitem__, reverse=True)  # stable: ties stay sorted by spelling
        symbols = [*reserved, *kept[: None if size is None else size - len(reserved)]]
        symbols += _make_fillers(-len(symbols) % check_multiple(multiple), set(symbols))
        numbers = [0] * len(reserved) + [counts.get(symbol, 0) for symbol in symbols[len(reserved) :]]
        return cls(symbols, numbers, specials=specials)

    @classmethod
    def read(cls, file: str | Path | bytes, *, specials: Mapping[str, str] | None = None) -> Vocabulary:
        """Read a vocabulary file with one `symbol count` or `symbol` per line, or a fairseq dict.txt."""
        name = "vocab.txt" if isinstance(file, bytes) else str(file)
        symbols: list[str] = []
        counts: list[int] = []
        first: dict[str, int] = {}
        for number, line in enumerate(_split_lines(read_content(file), name), 1):
            symbol, count = _parse_line(line, where := f"{name}:{number}")
            if symbol in first:
                hint = f"first defined in line {first[symbol]}; remove one of them"
                raise AlchemyError(f"duplicate symbol {symbol!r}", where=where, hint=hint)
            first[symbol] = number
            symbols.append(symbol)
            counts.append(count)
        return cls(symbols, counts, specials=SPECIALS if specials is None else specials)

    def text(self) -> str:
        """Return the vocabulary in the file format that `read` accepts."""
        return "".join(f"{_ESCAPED.sub(_escape, s)} {count}\n" for s, count in zip(self.symbols, self.counts))


def check_multiple(multiple: int) -> int:
    """Return `multiple`, or raise an error if it is less than 1."""
    if multiple < 1:
        raise AlchemyError(f"multiple = {multiple}: expected 1 or more")
    return multiple


def _make_fillers(count: int, taken: Collection[str]) -> list[str]:
    names = (f"<unused{number}>" for number in itertools.count())
    return list(itertools.islice((name for name in names if name not in taken), count))


def _split_lines(content: bytes, name: str) -> list[str]:
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        where = f"{name}:{content[: error.start].count(10) + 1}"
        raise AlchemyError("a vocabulary must be UTF-8", where=where) from error
    return lines[:-1] if lines[-1] == "" else lines


def _parse_line(line: str, where: str) -> tuple[str, int]:
    head, blank, tail = line.removesuffix("\r").rpartition(" ")
    symbol, count = (head, tail) if blank else (tail, "0")
    if not symbol:
        raise AlchemyError("the symbol is empty", where=where, hint="write `symbol count`; a space is <U+0020>")
    if not (count.isascii() and count.isdigit()):
        raise AlchemyError(f"{count!r} is not a count", where=where, hint="write `symbol count`, with one space")
    if "<U+" in symbol:
        symbol = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), symbol)
    return symbol, int(count)


def _escape(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"
