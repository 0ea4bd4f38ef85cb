"""Word and character tokenizers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from alchemy.text.base import ROLES, Encoded, Located, Tokenizer
from alchemy.text.vocab import Vocabulary


class VocabularyTokenizer(Tokenizer):
    """Base class for tokenizers with a `Vocabulary`."""

    FILES: ClassVar[Mapping[str, str]] = {"vocab": "vocab.txt"}

    def __init__(self, vocab: str | Path | Vocabulary, specials: Mapping[str, str] | None) -> None:
        self.vocab = vocab if isinstance(vocab, Vocabulary) else Vocabulary.read(vocab, specials=specials)
        self.size = len(self.vocab)
        self.pad, self.bos, self.eos, self.unk = (self.vocab.special(role) for role in ROLES)
        self.hidden = frozenset(self.vocab.places[symbol] for symbol in self.vocab.specials.values()) - {self.unk}

    def id_of(self, symbol: str) -> int | None:
        return self.vocab.places.get(symbol)

    def contents(self) -> dict[str, bytes]:
        return {"vocab.txt": self.vocab.text().encode()}

    @classmethod
    def count(cls, lines: Iterable[str], *, lower: bool = False) -> Counter[str]:
        """Count the words in the lines. Counts from several files can be added."""
        return Counter(chain.from_iterable(map(str.split, _lower_lines(lines, lower))))

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        min_frequency: int = 1,
        size: int | None = None,
        multiple: int = 1,
        specials: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Build a tokenizer from the result of `count`. `options` are passed to the constructor."""
        vocab = Vocabulary.from_counts(
            counts, min_frequency=min_frequency, size=size, multiple=multiple, specials=specials
        )
        return cls(vocab=vocab, **options)

    @classmethod
    def train(cls, lines: Iterable[str], *, lower: bool = False, **options: Any) -> Self:
        """Build a tokenizer from lines of text. `options` are passed to `from_counts`."""
        return cls.from_counts(cls.count(lines, lower=lower), lower=lower, **options)


@Tokenizer.register()
class Words(VocabularyTokenizer):
    """Tokenizer that splits on whitespace. With `joiner = "@@"`, decoding joins pieces ending in `@@` to the next one.

    >>> words = Words.train(["a dog", "a cat"])
    >>> words.encode("a bird"), words.decode([1, 4, 6, 2])
    ([4, 3], 'a dog')
    """

    def __init__(
        self,
        *,
        vocab: str | Path | Vocabulary,
        lower: bool = False,
        joiner: str = "",
        specials: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(vocab, specials)
        self.lower, self.joiner = lower, joiner.strip()

    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "joiner": self.joiner, "specials": self.vocab.specials}

    def encode(self, text: str) -> list[int]:
        return list(map(self.vocab.ids.__getitem__, (text.lower() if self.lower else text).split()))

    def offsets(self, text: str) -> Located:
        return self.encode(text), [match.span() for match in re.finditer(r"\S+", text)]

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        lines = list(_lower_lines(lines, self.lower))
        words = "\n".join(lines).split()  # splitting twice is faster than keeping a list per line
        lengths = np.fromiter(map(len, map(str.split, lines)), np.int64, len(lines))
        return np.fromiter(map(self.vocab.ids.__getitem__, words), np.int32, len(words)), lengths

    def join(self, ids: list[int]) -> str:
        return join_words(self.vocab, ids, self.joiner)


@Tokenizer.register()
class Characters(VocabularyTokenizer):
    """Tokenizer that splits text into single characters, including whitespace."""

    def __init__(
        self, *, vocab: str | Path | Vocabulary, lower: bool = False, specials: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(vocab, specials)
        self.lower = lower

    def options(self) -> dict[str, Any]:
        return {"lower": self.lower, "specials": self.vocab.specials}

    def encode(self, text: str) -> list[int]:
        return list(map(self.vocab.ids.__getitem__, text.lower() if self.lower else text))

    def offsets(self, text: str) -> Located:
        # a character may become two when lowercased
        counts = [len(sign.lower()) if self.lower else 1 for sign in text]
        return self.encode(text), [(place, place + 1) for place, count in enumerate(counts) for _ in range(count)]

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        lines = list(_lower_lines(lines, self.lower))
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), "<u4")
        ids = self._table[np.minimum(codes, len(self._table) - 1)]
        for place in np.flatnonzero(ids < 0)[:1]:
            self.vocab.ids[chr(codes[place])]  # raises
        return ids, lengths

    def join(self, ids: list[int]) -> str:
        return "".join(map(self.vocab.symbols.__getitem__, ids))

    @classmethod
    def count(cls, lines: Iterable[str], *, lower: bool = False) -> Counter[str]:
        """Count the characters in the lines."""
        return Counter(chain.from_iterable(_lower_lines(lines, lower)))

    @cached_property
    def _table(self) -> np.ndarray:
        """Ids by code point. The last entry is for all higher code points. Unknown characters map to `unk` or -1."""
        known = {ord(symbol): place for symbol, place in self.vocab.ids.items() if len(symbol) == 1}
        table = np.full(max(known, default=0) + 2, -1 if self.unk is None else self.unk, np.int32)
        table[list(known)] = list(known.values())
        return table


def _lower_lines(lines: Iterable[str], lower: bool) -> Iterable[str]:
    return map(str.lower, lines) if lower else lines


def join_words(vocab: Vocabulary, ids: list[int], joiner: str) -> str:
    """Join words with spaces, but without a space after a word that ends with the joiner."""
    text = " ".join(map(vocab.symbols.__getitem__, ids))
    return f"{text} ".replace(f"{joiner} ", "").rstrip(" ") if joiner else text
