"""Words cut by the codes of subword-nmt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.text.base import Encoded, Tokenizer, content_of, flatten
from alchemy.text.vocab import Vocabulary
from alchemy.text.words import Listed, join_words

JOINER = "@@"
END = "</w>"
KEPT = 200_000  # words whose pieces are remembered: memory stays bounded, whatever the text
Pair = tuple[str, str]


@Tokenizer.register()
class SubwordNMT(Listed):
    """Words cut by `codes` of subword-nmt, as `subword-nmt apply-bpe` cuts them, then looked up in a vocabulary."""

    FILES: ClassVar[Mapping[str, str]] = {**Listed.FILES, "codes": "codes.txt"}

    def __init__(
        self,
        *,
        codes: str | Path | bytes,
        vocab: str | Path | Vocabulary,
        lower: bool = False,
        specials: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(vocab, specials)
        self.codes, self.lower = content_of(codes), lower
        self.words = _PieceIds(_read_codes(codes), self.vocab)

    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "specials": self.vocab.specials}

    def contents(self) -> dict[str, bytes]:
        return {**super().contents(), "codes.txt": self.codes}

    def segment(self, text: str) -> str:
        """The text that subword-nmt writes: pieces that go on in the next one end with `@@`."""
        return " ".join(piece for word in self._split(text) for piece in self.words.codes.cut(word))

    def encode(self, text: str) -> list[int]:
        return [place for word in self._split(text) for place in self.words[word]]

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        rows = [self._split(line) for line in lines]
        ids, lengths = flatten(list(map(self.words.__getitem__, chain.from_iterable(rows))))
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        return ids, np.diff(np.concatenate([[0], np.cumsum(lengths)])[ends], prepend=0)

    def join(self, ids: list[int]) -> str:
        return join_words(self.vocab, ids, JOINER)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, codes: str | Path | bytes, **options: Any) -> Self:  # type: ignore[override]
        """The tokenizer of words that were counted: each is cut by the codes, and the pieces are the vocabulary."""
        read = _read_codes(codes)
        found: Counter[str] = Counter()
        for word, count in counts.items():
            for piece in read.cut(word):
                found[piece] += count
        return super().from_counts(found, codes=codes, **options)

    def _split(self, text: str) -> list[str]:
        return (text.lower() if self.lower else text).split()


class _Codes(NamedTuple):
    """Pairs of symbols in the order in which they are merged, and whether the last character marks the end."""

    ranks: Mapping[Pair, int]
    marked: bool

    def cut(self, word: str) -> list[str]:
        """The pieces of a word; those that go on in the next one end with `@@`."""
        # since version 0.2 the mark of the end belongs to the last character; before, it was a symbol of its own
        symbols = [*word[:-1], word[-1] + END] if self.marked else [*word, END]
        merged = _merge(symbols, self.ranks)
        merged = merged[:-1] if merged[-1] == END else [*merged[:-1], merged[-1].removesuffix(END)]
        return [*(piece + JOINER for piece in merged[:-1]), merged[-1]]


class _PieceIds(dict[str, list[int]]):
    """The ids of the pieces of words, worked out when they are first asked for."""

    def __init__(self, codes: _Codes, vocab: Vocabulary) -> None:
        super().__init__()
        self.codes, self.vocab = codes, vocab

    def __missing__(self, word: str) -> list[int]:
        if len(self) >= KEPT:
            self.clear()
        self[word] = [self.vocab.ids[piece] for piece in self.codes.cut(word)]
        return self[word]

    def __reduce__(self) -> tuple[Any, ...]:
        return _PieceIds, (self.codes, self.vocab)


def _merge(symbols: list[str], ranks: Mapping[Pair, int]) -> list[str]:
    """Merges the pair that comes first among the codes, everywhere, until none is left.

    >>> _merge(["l", "o", "w", "l", "o"], {("l", "o"): 0, ("lo", "w"): 1})
    ['low', 'lo']
    """
    while len(symbols) > 1:
        best = min(pairwise(symbols), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        symbols = list(_merged(symbols, best))
    return symbols


def _merged(symbols: Sequence[str], pair: Pair) -> Iterable[str]:
    place = 0
    while place < len(symbols):
        width = 2 if tuple(symbols[place : place + 2]) == pair else 1
        yield "".join(symbols[place : place + width])
        place += width


def _read_codes(file: str | Path | bytes) -> _Codes:
    name = "codes.txt" if isinstance(file, bytes) else str(file)
    lines = content_of(file).decode("utf-8-sig").split("\n")
    version = lines[0].removeprefix("#version:").strip() if lines[0].startswith("#version:") else ""
    first = 1 if version else 0
    if version not in ("", "0.1", "0.2"):
        raise AlchemyError(f"codes of version {version} are not known", where=f"{name}:1", hint="0.1 and 0.2 are")
    ranks: dict[Pair, int] = {}
    for number, line in enumerate(lines[first:], first + 1):
        match line.strip("\r ").split(" "):
            case [left, right]:
                ranks.setdefault((left, right), len(ranks))  # of two equal ones, the first counts
            case [""] if number == len(lines):
                pass
            case _:
                text, hint = f"{line!r} is no pair of symbols", "a line of codes is `left right`"
                raise AlchemyError(text, where=f"{name}:{number}", hint=hint)
    return _Codes(ranks, version == "0.2")
