"""subword-nmt codes, applied exactly as in subword-nmt."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.text import SubwordNMT, subword
from tests.text.kinds import CODES, LINES
from tests.text.sets import needs

MULTI30K = "multi30k_en_de"


def test_words_are_cut_by_the_codes() -> None:
    tokenizer = SubwordNMT.train(LINES, codes=CODES)
    assert tokenizer.segment("the  dogs that x") == "the do@@ g@@ s th@@ at x"
    assert tokenizer.segment("") == ""


def test_before_version_0_2_the_end_was_a_symbol_of_its_own() -> None:
    tokenizer = SubwordNMT.train(["at hat"], codes=b"a t\nat </w>\n")
    assert tokenizer.segment("at hat ta") == "at h@@ at t@@ a"


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subword, "CACHE_SIZE", 3)
    tokenizer = SubwordNMT.train(LINES, codes=CODES)
    lines = [*LINES, *LINES]
    assert tokenizer.encode_lines(lines)[0].tolist() == [i for line in lines for i in tokenizer.encode(line)]
    assert len(tokenizer.piece_ids) <= 3


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (
            b"#version: 0.2\na b\na b c\n",
            "codes.txt:3 expected two symbols, got 'a b c'; write each pair as `left right`",
        ),
        (b"#version: 0.2\na b\n\nb c\n", "codes.txt:3 expected two symbols, got ''"),
        (b"#version: 1.0\na b\n", "codes.txt:1 unknown version of the codes: 1.0"),
    ],
)
def test_bad_codes_are_named(tmp_path: Path, codes: bytes, message: str) -> None:
    (tmp_path / "codes.txt").write_bytes(codes)
    with pytest.raises(AlchemyError, match=re.escape(message)):
        SubwordNMT.train([], codes=tmp_path / "codes.txt")


@pytest.mark.parametrize("side", ["en", "de"])
def test_multi30k_is_cut_as_it_was_published(side: str) -> None:
    folder = needs(MULTI30K)
    cut = read(folder / "bpe10k_revisit_mmt" / f"train.{side}.gz")
    lines = read(folder / "tok" / f"train.lc.norm.tok.{side}.gz")
    tokenizer = SubwordNMT.train(lines, codes=folder / "bpe10k_revisit_mmt" / "bpe_codes.txt")
    # one line of the dataset has two spaces in the middle and one at the end
    expected = [" ".join(line.split()) for line in cut]
    assert [tokenizer.segment(line) for line in lines] == expected
    ids, lengths = tokenizer.encode_lines(lines)
    assert lengths.tolist() == [len(line.split()) for line in cut] and tokenizer.unk not in ids
    assert tokenizer.decode(tokenizer.encode(lines[0])) == lines[0]


def read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]
