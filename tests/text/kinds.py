"""One tokenizer of every kind, made from the same few lines."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from alchemy.text import BPE, Characters, Folder, Residues, SentencePiece, SubwordNMT, Tokenizer, Words

LINES = ["the cat sat on the mat", "the dog sat near the cat", "a dog and a cat ran", "weiß-blaue Häuser, 你好 世界 !"]
WORDS = sorted({word for line in LINES for word in line.split()})
PURE = [
    word for word in WORDS if word.isascii() and word.isalpha()
]  # BERT splits at punctuation and Chinese characters
CODES = b"#version: 0.2\nt h\nth e</w>\na t</w>\nd o\ndo g</w>\nc at</w>\n"

plain = st.lists(st.sampled_from(WORDS)).map(" ".join)
spaced = st.lists(st.sampled_from(WORDS)).flatmap(
    lambda words: st.lists(st.sampled_from([" ", "  ", "\t", " "]), min_size=len(words), max_size=len(words)).map(
        lambda blanks: "".join(word + blank for word, blank in zip(words, blanks))
    )
)


class Utf8(Tokenizer):
    """A custom kind: bytes, with the defaults of the base class for everything else."""

    def __init__(self, *, first: int = 2) -> None:
        self.first, self.size = first, first + 256
        self.pad, self.eos = 0, 1
        self.hidden = frozenset(range(first))

    def encode(self, text: str) -> list[int]:
        return [self.first + byte for byte in text.encode()]

    def join(self, ids: list[int]) -> str:
        return bytes(i - self.first for i in ids).decode()

    def options(self) -> dict[str, Any]:
        return {"first": self.first}

    def contents(self) -> dict[str, bytes]:
        return {}


def vocab_and_merges(folder: Path) -> Any:
    bpe: Any = BPE.train(LINES, size=300)
    bpe.backend.inner.model.save(str(folder))
    return Folder(path=folder)


def wordpiece(folder: Path) -> Any:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *WORDS, "-", ",", "blaue", "weiß", "Häuser"]
    pieces += [character for character in "你好世界" if character not in pieces]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n", "utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}')
    return Folder(path=folder, multiple=8)


def whole(folder: Path) -> Any:
    BPE.train(LINES, size=300).save(folder / "saved")
    (folder / "saved" / "alchemy.json").unlink()
    return Folder(path=folder / "saved")


def spiece(folder: Path) -> Any:
    (folder / "spiece.model").write_bytes(SentencePiece.train(LINES, size=70).content)
    return Folder(path=folder, model_type="t5")


def xlnet(folder: Path) -> Any:
    (folder / "spiece.model").write_bytes(SentencePiece.train(LINES, size=70).content)
    return Folder(path=folder, model_type="xlnet", lower=True)


# how to make it, texts that it knows, and the result
KINDS: dict[str, tuple[Callable[[Path], Any], st.SearchStrategy[str], Callable[[str], str]]] = {
    "words": (lambda _: Words.train(LINES), spaced, lambda text: " ".join(text.split())),
    "lower": (
        lambda _: Words.train(LINES, lower=True, multiple=8),
        spaced,
        lambda text: " ".join(text.lower().split()),
    ),
    "characters": (lambda _: Characters.train(LINES), st.text(sorted(set("".join(LINES)))), str),
    "subword-nmt": (
        lambda _: SubwordNMT.train(LINES, codes=CODES),
        spaced,
        lambda text: " ".join(text.split()),
    ),
    "bpe": (lambda _: BPE.train(LINES, size=300, multiple=16), st.text(), str),
    "sentencepiece": (lambda _: SentencePiece.train(LINES, size=70, coverage=1.0), plain, str),
    "tokenizer.json": (whole, st.text(), str),
    "vocab.txt": (wordpiece, st.lists(st.sampled_from(PURE)).map(" ".join), str),
    "vocab.json": (vocab_and_merges, st.text(), str),
    "spiece.model": (spiece, plain, str),
    "xlnet": (xlnet, st.lists(st.sampled_from(PURE)).map(" ".join), str),
    "residues": (lambda _: Residues(), st.text("ACDEFGHIKLMNPQRSTVWYX"), lambda text: text.upper().replace(" ", "X")),
    "own": (lambda _: Utf8(), st.text(), str),
}


@functools.cache
def make(kind: str) -> Any:
    """A tokenizer of a kind; the files it was made from are deleted before use."""
    with tempfile.TemporaryDirectory() as folder:
        return KINDS[kind][0](Path(folder))


every_kind = pytest.mark.parametrize("kind", KINDS)
