"""Byte-pair encoding trained by alchemy."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.text import BPE, backend
from tests.text.kinds import LINES


def test_training_learns_merges_and_always_the_same() -> None:
    first, second = (BPE.train(lines, size=290) for lines in (LINES, reversed(LINES)))
    assert first.digest == second.digest
    assert first.encode("the the") == first.encode("the") + first.encode(" the") and len(first.encode(" the")) == 1
    assert (first.pad, first.bos, first.eos, first.unk) == (0, 1, 2, 3)


def test_lower_case_and_other_special_symbols() -> None:
    bpe = BPE.train(LINES, size=300, lower=True, specials={"eos": "<|end|>"})
    assert (bpe.eos, bpe.pad) == (0, None)
    assert bpe.decode([*bpe.encode("THE <|end|>"), 0]) == "the <|end|>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BPE.train([], size=259), "size = 259 leaves no room for 256 bytes and 4 special symbols"),
        (lambda: BPE(file=b"{}"), "BPE cannot read its tokenizer.json: "),
        (
            lambda: BPE.train([], size=260).encode("a \ud800"),
            r"BPE requires text that can be encoded as UTF-8, got 'a \ud800'",
        ),
        (
            lambda: BPE.train(["a", "bad \ud83d half"], size=260),
            r"UTF-8, got 'bad \ud83d half'; lone surrogates cannot be encoded: ",
        ),
        (
            lambda: BPE.train([], size=260).encode_lines(["a", 3]),  # type: ignore[list-item]
            "BPE requires text that can be encoded as UTF-8, got 3",
        ),
        (lambda: BPE(file="none.json"), "cannot read 'none.json': No such file"),
        (
            lambda: BPE(file=BPE.train([], size=260).content, specials={"pad": "[PAD]"}),
            "special symbols missing from the BPE file: [PAD]",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(AlchemyError, match=re.escape(message)):
        make()


def test_blanks_at_the_ends_of_a_token_are_not_among_its_characters() -> None:
    ids, places = BPE.train(["the dog was"] * 9, size=300).offsets("the dog  was ")
    assert [place for place in places if place[0] < place[1]] == [(0, 3), (4, 7), (9, 12)] and len(ids) == len(places)


def test_lines_are_handed_over_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    bpe = BPE.train(LINES, size=300)
    ids, lengths = bpe.encode_lines(LINES)
    monkeypatch.setattr(backend, "BLOCK", 3)
    again = bpe.encode_lines(LINES)
    assert (again[0].tolist(), again[1].tolist()) == (ids.tolist(), lengths.tolist())


def test_what_somebody_has_set_for_his_batches_is_not_taken_over() -> None:
    bpe: Any = BPE.train(LINES, size=300)
    bpe.backend.inner.enable_truncation(2)
    bpe.backend.inner.enable_padding(length=9)
    again = BPE(file=bpe.backend.inner.to_str().encode())
    assert json.loads(again.content)["truncation"]["max_length"] == 2
    assert again.decode(again.encode(LINES[0])) == LINES[0]
