"""Word and character tokenizers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.text import Characters, Words, load_tokenizer

NO_UNKNOWN = {"pad": "<pad>"}


def test_unknown_words_are_seen_in_text() -> None:
    words = Words.train(["a cat", "a dog"], min_frequency=2)
    assert words.encode("a dog <unk> <pad>") == [4, 3, 3, 3]
    assert words.decode([1, 4, 3, 2, 0]) == "a <unk>"


@pytest.mark.parametrize("kind", [Words, Characters])
def test_without_a_symbol_for_it_an_unknown_one_is_refused(kind: type[Words] | type[Characters]) -> None:
    tokenizer = kind.train(["a b"], specials=NO_UNKNOWN)
    assert tokenizer.unk is None and tokenizer.decode(tokenizer.encode("b a")) == "b a"
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_lines([text])):
        with pytest.raises(AlchemyError, match="'c' is not in the vocabulary, which has no symbol"):
            encode("a c")


@pytest.mark.parametrize("joiner", ["@@", "@@ "])
def test_text_that_was_cut_by_others_is_joined(joiner: str) -> None:
    words = Words.train(["ein@@ e Kat@@ ze @ @@@@ x"], joiner=joiner)
    assert words.decode(words.encode("ein@@ e Kat@@ ze @")) == "eine Katze @"
    assert words.decode(words.encode("Kat@@ ein@@")) == "Katein"


def test_counts_of_several_files_add_up_to_those_of_one() -> None:
    lines = ["A cat", "a dog a day", ""]
    parts = sum((Words.count([line], lower=True) for line in lines), Counter())
    assert Words.from_counts(parts, lower=True).digest == Words.train(lines, lower=True).digest


def test_characters_that_no_line_of_a_file_can_hold_are_kept(tmp_path: Path) -> None:
    text = " \t\n\u2028\x1c\ud800\\<"
    Characters.train([text]).save(tmp_path / "one")
    characters = load_tokenizer(tmp_path / "one")
    ids, lengths = characters.encode_lines([text, "", "\U0010ffff"])
    assert ids.tolist() == [*characters.encode(text), characters.unk] and lengths.tolist() == [len(text), 0, 1]
    assert characters.decode(ids[:-1]) == text


def test_characters_are_lowered_before_they_are_counted() -> None:
    characters = Characters.train(["İx"], lower=True)  # lowered, it is two characters
    assert characters.encode_lines(["İ", "X"])[1].tolist() == [2, 1]
    assert characters.decode(characters.encode("İX")) == "i\u0307x"


def test_nothing_can_be_trained_on() -> None:
    assert Words.train([]).size == Characters.train([]).size == 4
    assert Characters.train([]).encode_lines(["ab"])[0].tolist() == [3, 3]


def test_characters_that_are_two_in_lower_case_stand_in_one_place() -> None:
    tokenizer = Characters.train(["aİΣ"], lower=True)
    assert tokenizer.offsets("aİΣ") == (tokenizer.encode("aİΣ"), [(0, 1), (1, 2), (1, 2), (2, 3)])
