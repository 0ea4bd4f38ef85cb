"""A tokenizer for protein sequences with a fixed vocabulary of residues or k-mers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from string import ascii_lowercase
from typing import Annotated, Any, Self

from alchemy.constraints import Ge, Le
from alchemy.text.base import Located, Tokenizer
from alchemy.text.vocab import SPECIALS, Vocabulary
from alchemy.text.words import VocabularyTokenizer

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
UNKNOWN = "X"  # any residue, as in IUPAC
_UPPER = {ord(letter): letter.upper() for letter in ascii_lowercase}  # str.upper changes the length of some texts


@Tokenizer.register()
class Residues(VocabularyTokenizer):
    """Tokenizer for proteins: one token per residue, or with `k`, one token per k-mer, which overlap.

    The ids do not depend on any data. Every letter that is not one of the twenty amino acids, and every k-mer that
    contains one, is the unknown residue `X`. Sequences are converted to upper case.

    >>> Residues().encode("MKX"), Residues(k=2).decode(Residues(k=2).encode("mkva"))
    ([14, 12, 3], 'MKVA')
    """

    FILES = {}

    def __init__(self, *, k: Annotated[int, Ge(1), Le(4)] = 1) -> None:
        symbols = ["".join(letters) for letters in product(AMINO_ACIDS, repeat=k)]
        super().__init__(Vocabulary(symbols, specials=SPECIALS | {"unk": UNKNOWN}), None)
        self.k = k

    @classmethod
    def train(cls, lines: Iterable[str], *, k: int = 1) -> Self:  # type: ignore[override]
        """Return the tokenizer; there is nothing to learn from the lines."""
        return cls(k=k)

    def options(self) -> dict[str, Any]:
        return {"k": self.k}

    def contents(self) -> dict[str, bytes]:
        return {}

    def encode(self, text: str) -> list[int]:
        # a sequence that is shorter than k is one unknown k-mer
        text = text.translate(_UPPER)
        kmers = text if self.k == 1 else [text[i : i + self.k] for i in range(max(len(text) - self.k + 1, bool(text)))]
        return list(map(self.vocab.ids.__getitem__, kmers))

    def offsets(self, text: str) -> Located:
        ids = self.encode(text)
        return ids, [(place, min(place + self.k, len(text))) for place in range(len(ids))]

    def join(self, ids: list[int]) -> str:
        kmers = [self.vocab.symbols[place] for place in ids]
        return "".join(kmers[:1] + [kmer[-1] for kmer in kmers[1:]])
