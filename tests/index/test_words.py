"""Full-text search finds every word, and every pair of Chinese characters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.text_matches import find_matches
from alchemy.index.record_index import RecordIndex
from alchemy.index.words import LONGEST, MAX_SIZE, MAX_TERMS, query_terms, split_words
from alchemy.records.readme import set_purpose
from tests.analysis.fake_runs import write_run

CHINESE = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=2, max_size=12)
TEXTS = st.lists(st.one_of(st.text(max_size=20), CHINESE), max_size=8).map("".join)


@given(TEXTS)
def test_every_word_of_a_text_is_found(text: str) -> None:
    found = set(split_words(text))
    for word in re.findall(r"[^\W_]+", text):
        assert set(query_terms(word)) <= found


@given(before=TEXTS, word=CHINESE, after=TEXTS)
def test_every_pair_of_chinese_characters_is_found(before: str, word: str, after: str) -> None:
    found = set(split_words(before + word + after))
    for place in range(len(word) - 1):
        assert query_terms(word[place : place + 2]) == [word[place : place + 2]]
        assert word[place : place + 2] in found


@given(st.text())
def test_terms_are_safe_to_quote(text: str) -> None:
    """They contain no spaces, quotes or operators of a full-text query."""
    assert all(
        re.fullmatch(r"[^\W_]+", term) and len(term) <= LONGEST for term in [*split_words(text), *query_terms(text)]
    )


def test_a_huge_text_is_cut() -> None:
    many = split_words(" ".join(f"w{number}" for number in range(50_000)))
    assert many[-1] == f"w{MAX_TERMS - 1}"
    assert sum(map(len, split_words(" ".join(f"{number:064}" for number in range(50_000))))) < MAX_SIZE + LONGEST + 1


def test_the_databases_find_words_in_any_script(project: Path) -> None:
    """Each word is found by both databases exactly as Python splits it."""
    words = [
        "焦点",
        "损失",
        "Müller",
        "straße",
        "ΑΒΓ",
        "кот",
        "𝔘𝔫𝔦",
        "٣٤",
        "ไทย",
        "naïve",
        "ﬁne",
        "ⅷ",
        "日本語",
        "한국어",
    ]
    folders = {word: project / write_run(project, number, {}) for number, word in enumerate(words)}
    for word, folder in folders.items():
        set_purpose(folder, f"x_{word}-y")
    with RecordIndex.open() as index:
        found = {word: [Path(row.path) for row in index.query(f'"{word}"')] for word in words}
    assert found == {word: [folder] for word, folder in folders.items()}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("adam", True), ("ada", True), ("ad", False), ("damw", False), ("10", False), ("100", True), ("müll", True)],
)
def test_the_beginning_of_a_word_is_enough(project: Path, text: str, is_found: bool) -> None:
    set_purpose(project / write_run(project, 0, {}), "Müllers AdamW, 100 epochs")
    with RecordIndex.open() as index:
        rows = index.query(f'"{text}"')
        assert len(rows) == is_found
        matches = find_matches(index, rows, text)
    for match in (match for found in matches.values() for match in found if match.where == "purpose"):
        ((start, end),) = match.spans
        assert match.text[start:end].lower() == text
