"""Vocabularies: order, files, and invalid input."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.text import Vocabulary, Words

FAIRSEQ = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
any_symbol = st.text(st.characters(), min_size=1) | st.sampled_from(["<U+0020>", " ", "\n", "\x1c", "\ud800", "<unk>"])


@given(counts=st.dictionaries(any_symbol, st.integers(1, 9)), multiple=st.integers(1, 9))
def test_the_file_gives_the_vocabulary_back(counts: dict[str, int], multiple: int) -> None:
    vocab = Vocabulary.from_counts(counts, multiple=multiple)
    again = Vocabulary.read(vocab.text().encode())
    assert (again.symbols, again.counts, again.ids) == (vocab.symbols, vocab.counts, vocab.ids)
    assert len(vocab) % multiple == 0


@given(counts=st.dictionaries(st.text(min_size=1), st.integers(1, 3)), seed=st.integers())
def test_the_order_does_not_depend_on_how_text_was_cut(counts: dict[str, int], seed: int) -> None:
    rows = list(counts.items())
    random.Random(seed).shuffle(rows)
    assert Vocabulary.from_counts(dict(rows)).symbols == Vocabulary.from_counts(counts).symbols


def test_the_rare_are_left_out_and_the_size_holds() -> None:
    counts = {"a": 5, "b": 4, "c": 4, "d": 1}
    assert Vocabulary.from_counts(counts, min_frequency=2).symbols[4:] == ["a", "b", "c"]
    assert Vocabulary.from_counts(counts, size=6).symbols[4:] == ["a", "b"]
    assert Vocabulary.from_counts(counts, size=6, multiple=4).symbols[4:] == ["a", "b", "<unused0>", "<unused1>"]
    assert Vocabulary.from_counts({"<unused0>": 1}, multiple=3).symbols[4:] == ["<unused0>", "<unused1>"]


def test_special_symbols_have_roles_and_an_order() -> None:
    vocab = Vocabulary.from_counts({"a": 1, "</s>": 7}, specials=FAIRSEQ | {"mask": "<mask>"})
    assert vocab.symbols == ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]
    assert [vocab.special(role) for role in ("pad", "bos", "mask", "sep")] == [1, 0, 4, None]
    assert vocab.ids["</s>"] == vocab.special("unk")


def test_a_dict_of_fairseq_gets_its_ids(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_bytes("the 12\r\nweiß@@ 3\nmadeupword0000 0\n".encode())
    words = Words(vocab=tmp_path / "dict.txt", specials=FAIRSEQ)
    assert (words.pad, words.bos, words.eos, words.unk, words.size) == (1, 0, 2, 3, 7)
    assert words.encode("the weiß@@ dog") == [4, 5, 3]


def test_special_symbols_in_a_file_stay_where_they_are() -> None:
    vocab = Vocabulary.read(b"\xef\xbb\xbfa 3\n<unk>\nb 1\n<pad>", specials={"pad": "<pad>", "unk": "<unk>"})
    assert vocab.symbols == ["a", "<unk>", "b", "<pad>"]
    assert (vocab.special("unk"), vocab.ids["c"], vocab.counts) == (1, 1, [3, 0, 1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a 1\nb 1\na 2\n", "vocab.txt:3 duplicate symbol 'a'; first defined in line 1"),
        (b"a 1\n\nb 1\n", "vocab.txt:2 the symbol is empty"),
        (b"a 1\n 5\n", "vocab.txt:2 the symbol is empty"),
        (b"new york\n", "vocab.txt:1 'york' is not a count; write `symbol count`"),
        (b"a 1 #fairseq:overwrite\n", "vocab.txt:1 '#fairseq:overwrite' is not a count"),
        (b"a -1\n", "vocab.txt:1 '-1' is not a count"),
        (b"a 1\nb\xff 1\n", "vocab.txt:2 a vocabulary must be UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(text)
    with pytest.raises(AlchemyError, match=re.escape(message)):
        Words(vocab=str(tmp_path / "vocab.txt"))


def test_what_cannot_be_a_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="empty or duplicated"):
        Vocabulary(["a", "a"])
    with pytest.raises(AlchemyError, match="got 1 symbols and 2 counts"):
        Vocabulary(["a"], [1, 2])
    with pytest.raises(AlchemyError, match="size = 3 leaves no room for 4 special symbols"):
        Vocabulary.from_counts({}, size=3)
    with pytest.raises(AlchemyError, match="multiple = 0"):
        Vocabulary.from_counts({}, multiple=0)
    with pytest.raises(AlchemyError, match=r"cannot read .*none\.txt': No such file"):
        Words(vocab=tmp_path / "none.txt")
