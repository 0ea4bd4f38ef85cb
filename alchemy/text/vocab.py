"""Vocabularies: symbols in the order of their ids, with how often each was seen."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from alchemy.errors import AlchemyError
from alchemy.text.base import content_of

# the role of each special token and how it is spelt, in the order of their ids
SPECIALS = {"pad": "<pad>", "bos": "<bos>", "eos": "<eos>", "unk": "<unk>"}

# blanks and lone surrogates cannot stand in a line of a file; what looks like their spelling must not be taken for it
_UNWRITABLE = re.compile(r"[\s\ud800-\udfff]|<(?=U\+[0-9A-F]{4,6}>)")
_WRITTEN = re.compile(r"<U\+([0-9A-F]{4,6})>")


class _Lookup(dict[str, int]):
    """Ids by symbol; any other symbol has the id of the unknown one."""

    unknown: int | None = None

    def __missing__(self, symbol: str) -> int:
        if self.unknown is None:
            raise AlchemyError(
                f"{symbol!r} is not in the vocabulary, and that has no symbol for what is unknown",
                hint="give `specials` an 'unk', or leave such text out",
            )
        return self.unknown


class Vocabulary:
    """Symbols, each known by its place. Special ones that are not among them are put in front.

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
        lacking = [symbol for symbol in dict.fromkeys(specials.values()) if symbol not in present]
        self.symbols = [*lacking, *symbols]
        self.counts = [0] * len(lacking) + list(counts)
        self.specials = dict(specials)
        self.places = {symbol: place for place, symbol in enumerate(self.symbols)}
        if len(self.counts) != len(self.symbols):
            raise AlchemyError(f"{len(symbols)} symbols have {len(counts)} counts", hint="give each symbol one count")
        if len(self.places) != len(self.symbols) or "" in self.places:
            raise AlchemyError("a symbol of a vocabulary is empty or stands there twice")
        # text is never read as a special token
        spelt = set(specials.values())
        self.ids = _Lookup((symbol, place) for symbol, place in self.places.items() if symbol not in spelt)
        self.ids.unknown = self.special("unk")

    def __len__(self) -> int:
        return len(self.symbols)

    def special(self, role: str) -> int | None:
        """The id of a special symbol; None when there is none for this role."""
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
        """The most frequent symbols, equal ones by spelling: the order in which text was counted plays no part.

        `size` is the most symbols it may have, special ones included; then it is filled up to a multiple.
        """
        specials = SPECIALS if specials is None else specials
        spelt = list(dict.fromkeys(specials.values()))
        if size is not None and size < len(spelt):
            raise AlchemyError(f"size = {size} leaves no room for {len(spelt)} special symbols")
        kept = sorted(symbol for symbol, count in counts.items() if count >= min_frequency and symbol not in spelt)
        kept.sort(key=counts.__getitem__, reverse=True)  # leaves equal ones as they are
        symbols = [*spelt, *kept[: None if size is None else size - len(spelt)]]
        symbols += _fillers(-len(symbols) % check_multiple(multiple), set(symbols))
        numbers = [0] * len(spelt) + [counts.get(symbol, 0) for symbol in symbols[len(spelt) :]]
        return cls(symbols, numbers, specials=specials)

    @classmethod
    def read(cls, file: str | Path | bytes, *, specials: Mapping[str, str] | None = None) -> Vocabulary:
        """Reads lines `symbol count`, or `symbol` alone; also a dict.txt of fairseq, which leaves out special ones."""
        name = "vocab.txt" if isinstance(file, bytes) else str(file)
        symbols: list[str] = []
        counts: list[int] = []
        first: dict[str, int] = {}
        for number, line in enumerate(_lines(content_of(file), name), 1):
            symbol, count = _parse(line, where := f"{name}:{number}")
            if symbol in first:
                hint = f"it stands in line {first[symbol]} already; take one of them out"
                raise AlchemyError(f"the symbol {symbol!r} is there twice", where=where, hint=hint)
            first[symbol] = number
            symbols.append(symbol)
            counts.append(count)
        return cls(symbols, counts, specials=SPECIALS if specials is None else specials)

    def text(self) -> str:
        """The lines that `read` takes, one for each id."""
        return "".join(f"{_UNWRITABLE.sub(_spell, s)} {count}\n" for s, count in zip(self.symbols, self.counts))


def check_multiple(multiple: int) -> int:
    if multiple < 1:
        raise AlchemyError(f"multiple = {multiple}: a size is filled up to a multiple of 1 or more")
    return multiple


def _fillers(count: int, taken: Collection[str]) -> list[str]:
    names = (f"<unused{number}>" for number in itertools.count())
    return list(itertools.islice((name for name in names if name not in taken), count))


def _lines(content: bytes, name: str) -> list[str]:
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        where = f"{name}:{content[: error.start].count(10) + 1}"
        raise AlchemyError("a vocabulary must be UTF-8", where=where) from error
    return lines[:-1] if lines[-1] == "" else lines


def _parse(line: str, where: str) -> tuple[str, int]:
    head, blank, tail = line.removesuffix("\r").rpartition(" ")
    symbol, count = (head, tail) if blank else (tail, "0")
    if not symbol:
        raise AlchemyError("the symbol is empty", where=where, hint="write `symbol count`; a blank is <U+0020>")
    if not (count.isascii() and count.isdigit()):
        raise AlchemyError(f"{count!r} is not a count", where=where, hint="write `symbol count`, with one blank")
    if "<U+" in symbol:
        symbol = _WRITTEN.sub(lambda match: chr(int(match[1], 16)), symbol)
    return symbol, int(count)


def _spell(match: re.Match[str]) -> str:
    return f"<U+{ord(match[0]):04X}>"
