"""Tokenizers and vocabularies with a common interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.text.base import Tokenizer as Tokenizer
    from alchemy.text.base import load_tokenizer as load_tokenizer
    from alchemy.text.bpe import BPE as BPE
    from alchemy.text.external import Folder as Folder
    from alchemy.text.external import SentencePiece as SentencePiece
    from alchemy.text.residues import Residues as Residues
    from alchemy.text.subword import SubwordNMT as SubwordNMT
    from alchemy.text.vocab import Vocabulary as Vocabulary
    from alchemy.text.words import Characters as Characters
    from alchemy.text.words import Words as Words

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Tokenizer": "base",
        "load_tokenizer": "base",
        "BPE": "bpe",
        "Folder": "external",
        "SentencePiece": "external",
        "Residues": "residues",
        "SubwordNMT": "subword",
        "Vocabulary": "vocab",
        "Characters": "words",
        "Words": "words",
    },
)
