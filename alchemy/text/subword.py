"""Subword tokenizer that applies subword-nmt codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.text.base import Encoded, Tokenizer, flatten, read_content
from alchemy.text.vocab import Vocabulary
from alchemy.text.words import VocabularyTokenizer, join_words

JOINER = "@@"
END = "</w>"
CACHE_SIZE = 200_000  # number of words whose pieces are cached
Pair = tuple[str, str]


@Tokenizer.register()
class SubwordNMT(VocabularyTokenizer):
    """Tokenizer that splits words with subword-nmt `codes`, as `subword-nmt apply-bpe` does."""

    FILES: ClassVar[Mapping[str, str]] = {**VocabularyTokenizer.FILES, "codes": "codes.txt"}

    def __init__(
        self,
        *,
        codes: str | Path | bytes,
        vocab: str | Path | Vocabulary,
        lower: bool = False,
        specials: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(vocab, specials)
        self.codes, self.lower = read_content(codes), lower
        self.piece_ids = _PieceIds(_read_codes(codes), self.vocab)

    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "specials": self.vocab.specials}

    def contents(self) -> dict[str, bytes]:
        return {**super().contents(), "codes.txt": self.codes}

    def segment(self, text: str) -> str:
        """Return the text as subword-nmt writes it: every piece except the last of a word ends with `@@`."""
        return " ".join(piece for word in self._split(text) for piece in self.piece_ids.codes.split(word))

    def encode(self, text: str) -> list[int]:
        return [place for word in self._split(text) for place in self.piece_ids[word]]

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        rows = [self._split(line) for line in lines]
        ids, lengths = flatten(list(map(self.piece_ids.__getitem__, chain.from_iterable(rows))))
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        return ids, np.diff(np.concatenate([[0], np.cumsum(lengths)])[ends], prepend=0)

    def join(self, ids: list[int]) -> str:
        return join_words(self.vocab, ids, JOINER)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], *, codes: str | Path | bytes, **options: Any) -> Self:  # type: ignore[override]
        """Build a tokenizer from word counts; the vocabulary consists of the pieces of the words."""
        merges = _read_codes(codes)
        pieces: Counter[str] = Counter()
        for word, count in counts.items():
            for piece in merges.split(word):
                pieces[piece] += count
        return super().from_counts(pieces, codes=codes, **options)

    def _split(self, text: str) -> list[str]:
        return (text.lower() if self.lower else text).split()


class _Codes(NamedTuple):
    """Symbol pairs in merge order, and whether the last character carries the end-of-word mark."""

    ranks: Mapping[Pair, int]
    marked: bool

    def split(self, word: str) -> list[str]:
        """Return the pieces of a word; all except the last end with `@@`."""
        # since version 0.2, the end-of-word mark is part of the last character; before, it was a separate symbol
        symbols = [*word[:-1], word[-1] + END] if self.marked else [*word, END]
        merged = _merge(symbols, self.ranks)
        merged = merged[:-1] if merged[-1] == END else [*merged[:-1], merged[-1].removesuffix(END)]
        return [*(piece + JOINER for piece in merged[:-1]), merged[-1]]


class _PieceIds(dict[str, list[int]]):
    """A cache that maps words to the ids of their pieces."""

    def __init__(self, codes: _Codes, vocab: Vocabulary) -> None:
        super().__init__()
        self.codes, self.vocab = codes, vocab

    def __missing__(self, word: str) -> list[int]:
        if len(self) >= CACHE_SIZE:
            self.clear()
        self[word] = [self.vocab.ids[piece] for piece in self.codes.split(word)]
        return self[word]

    def __reduce__(self) -> tuple[Any, ...]:
        return _PieceIds, (self.codes, self.vocab)


def _merge(symbols: list[str], ranks: Mapping[Pair, int]) -> list[str]:
    """Repeatedly merge all occurrences of the pair with the lowest rank, until no known pair is left.

    >>> _merge(["l", "o", "w", "l", "o"], {("l", "o"): 0, ("lo", "w"): 1})
    ['low', 'lo']
    """
    while len(symbols) > 1:
        best = min(pairwise(symbols), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        symbols = list(_merge_pair(symbols, best))
    return symbols


def _merge_pair(symbols: Sequence[str], pair: Pair) -> Iterable[str]:
    place = 0
    while place < len(symbols):
        width = 2 if tuple(symbols[place : place + 2]) == pair else 1
        yield "".join(symbols[place : place + width])
        place += width


def _read_codes(file: str | Path | bytes) -> _Codes:
    name = "codes.txt" if isinstance(file, bytes) else str(file)
    lines = read_content(file).decode("utf-8-sig").split("\n")
    version = lines[0].removeprefix("#version:").strip() if lines[0].startswith("#version:") else ""
    first = 1 if version else 0
    if version not in ("", "0.1", "0.2"):
        raise AlchemyError(
            f"unknown version of the codes: {version}", where=f"{name}:1", hint="known versions are 0.1 and 0.2"
        )
    ranks: dict[Pair, int] = {}
    for number, line in enumerate(lines[first:], first + 1):
        match line.strip("\r ").split(" "):
            case [left, right]:
                ranks.setdefault((left, right), len(ranks))  # the first of several duplicates wins
            case [""] if number == len(lines):
                pass
            case _:
                text, hint = f"expected two symbols, got {line!r}", "write each pair as `left right`"
                raise AlchemyError(text, where=f"{name}:{number}", hint=hint)
    return _Codes(ranks, version == "0.2")
