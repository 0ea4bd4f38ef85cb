"""Building a corpus: the same bytes for any chunking, all or nothing when killed, one error for invalid input."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.data.corpus import text_sources
from alchemy.data.corpus.build import build
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.recipe import Recipe
from alchemy.data.corpus.text_sources import Piece, get_reader, read_text
from alchemy.errors import AlchemyError
from tests.data.corpus.texts import LINES, TEXT, files_below, one, texts, written

# -- output


@pytest.mark.parametrize("tokenizer", ["words", "characters", "bpe"])
def test_what_was_built_is_the_text(tmp_path: Path, tokenizer: str) -> None:
    corpus = one(tmp_path / "c", written(tmp_path / "t.txt", TEXT), tokenizer=tokenizer)
    assert texts(corpus) == TEXT
    assert all(ids[-1] == corpus.manifest.eos for ids in corpus)
    assert (corpus.manifest.sentences, corpus.manifest.unknown) == (len(TEXT), 0)
    assert corpus.manifest.sources[0]["lines"] == len(TEXT)


def test_sentences_may_go_without_an_end(tmp_path: Path) -> None:
    corpus = one(tmp_path / "c", written(tmp_path / "t.txt", TEXT), eos=False)
    assert texts(corpus) == TEXT
    assert [len(ids) for ids in corpus] == [len(line.split()) for line in TEXT]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(lines=LINES, piece=st.integers(1, 200), kind=st.sampled_from(["words", "characters"]), least=st.integers(1, 3))
def test_the_bytes_do_not_depend_on_pieces_or_processes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], piece: int, kind: str, least: int
) -> None:
    folder = tmp_path_factory.mktemp("same")
    text = written(folder / "t.txt", lines)
    one(folder / "1" / "c", text, tokenizer=kind, min_frequency=least)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_sources, "PIECE_BYTES", piece)
        one(folder / "3" / "c", text, workers=3, tokenizer=kind, min_frequency=least)
    assert files_below(folder / "1") == files_below(folder / "3")
    if least == 1:
        spaced = [" ".join(line.split()) if kind == "words" else line for line in lines]
        assert texts(Corpus(folder / "3" / "c")) == spaced


def test_rare_words_are_unknown_and_counted(tmp_path: Path) -> None:
    corpus = one(tmp_path / "c", written(tmp_path / "t.txt", TEXT), min_frequency=2, multiple=8)
    assert texts(corpus)[0] == "the dog <unk>"
    assert corpus.manifest.unknown == 9
    assert corpus.manifest.vocabulary == 8


def test_sides_are_aligned_and_may_share_a_vocabulary(tmp_path: Path) -> None:
    sides = {"en": [written(tmp_path / "t.en", ["a b", "c"])], "de": [written(tmp_path / "t.de", ["a", "d e f"])]}
    apart = build(Recipe(tmp_path / "apart", sides))
    joined = build(Recipe(tmp_path / "joined", sides, joined=True), workers=2)
    assert [apart[side].vocabulary for side in sides] == [7, 8]
    assert {joined[side].vocabulary for side in sides} == {10}
    assert [texts(Corpus(tmp_path / f"joined.{side}")) for side in sides] == [["a b", "c"], ["a", "d e f"]]


def test_a_dev_set_takes_the_tokenizer_of_the_training_set(tmp_path: Path) -> None:
    train = one(tmp_path / "train", written(tmp_path / "t.txt", TEXT))
    dev = one(
        tmp_path / "dev", written(tmp_path / "d.txt", ["the new dog"]), tokenizer={"": tmp_path / "train.tokenizer"}
    )
    assert dev.manifest.tokenizer["digest"] == train.manifest.tokenizer["digest"]
    assert texts(dev) == ["the <unk> dog"]
    assert dev.manifest.unknown == 1


# -- input


def packed(opener: Callable[..., Any]) -> Callable[[Path, bytes], None]:
    def write(path: Path, data: bytes) -> None:
        with opener(path, "wb") as file:
            file.write(data)

    return write


def as_csv(path: Path, data: bytes, **options: Any) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, **options)
        writer.writerows([["id", "text"], *([str(i), line] for i, line in enumerate(data.decode().splitlines()))])


def as_tsv(path: Path, data: bytes) -> None:
    as_csv(path, data, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)


def as_jsonl(path: Path, data: bytes) -> None:
    path.write_text("\n".join(json.dumps({"text": line}) for line in data.decode().splitlines()), "utf-8")


def as_parquet(path: Path, data: bytes) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `data` is not installed")
    parquet.write_table(pyarrow.table({"text": data.decode().splitlines()}), path)


KINDS: dict[str, Callable[[Path, bytes], Any]] = {
    "t.txt": lambda path, data: path.write_bytes(data),
    "bom.txt": lambda path, data: path.write_bytes(b"\xef\xbb\xbf" + data),
    "dos.txt": lambda path, data: path.write_bytes(data.replace(b"\n", b"\r\n")),
    "unended.txt": lambda path, data: path.write_bytes(data.rstrip(b"\n")),
    "t.gz": packed(gzip.open),
    "t.xz": packed(lzma.open),
    "t.bz2": packed(bz2.open),
    "t.csv": as_csv,
    "t.tsv": as_tsv,
    "t.jsonl": as_jsonl,
    "t.parquet": as_parquet,
}


@pytest.mark.parametrize("piece", [7, 2**20])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_sentences(
    tmp_path: Path, name: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_sources, "PIECE_BYTES", piece)
    monkeypatch.setattr(text_sources, "ROWS", 2)
    KINDS[name](tmp_path / name, "".join(f"{line}\n" for line in TEXT).encode())
    assert texts(one(tmp_path / "c", tmp_path / name)) == TEXT


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), min_size=1),
    piece=st.integers(1, 30),
)
def test_pieces_of_a_file_are_its_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str], piece: int) -> None:
    path = tmp_path_factory.mktemp("pieces") / "t.txt"
    written(path, ["", *lines])  # an empty first line, so that nothing looks like a byte order mark
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_sources, "PIECE_BYTES", piece)
        source = get_reader(path, "text")
        found = [line for cut in source.cut(path) for line in source.read(cut)]
    assert found == ["", *lines]


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{i}.txt", [line]) for i, line in enumerate(TEXT)]
    corpus = one(tmp_path / "c", tmp_path / "*.txt")
    assert texts(corpus) == TEXT
    assert [corpus.where(i) for i in (0, 5)] == [f"{files[0]}:1", f"{files[5]}:1"]


def test_a_file_may_be_there_twice(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    corpus = one(tmp_path / "c", text, text)
    assert texts(corpus) == TEXT * 2
    assert [source["lines"] for source in corpus.manifest.sources] == [len(TEXT)] * 2


# -- errors


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", b"", "no sentences in .*t.txt; check that the file is not empty"),
        ("t.txt", b"a\nb\n\xff\n", r"t\.txt:3 .*is not valid utf-8: invalid start byte \(byte 0xff\)"),
        ("t.txt", b"a\rb\rc", r"t\.txt the lines end with carriage returns only; convert them to line feeds: tr"),
        ("t.jsonl", b'{"text": "a"}\n\n{"txt": "b"}\n', r"t\.jsonl:3 .*no field 'text', got 'txt'"),
        ("t.jsonl", b'{"text": "a"}\n{"text": 3}\n', r"t\.jsonl:2 .*text must be a string, got 3"),
        ("t.jsonl", b'{"text": "a"}\n{"text": "\\ud800"}\n', r"t\.jsonl:2 .*surrogates not allowed"),
        ("t.jsonl", b"{\n", r"t\.jsonl:1 .*Expecting property name"),
        ("t.csv", b"id,text\n1,a\n2\n", r"t\.csv:3 .*expected 2 cells \(id, text\), got 1"),
        ("t.csv", b"id,text\n1,a, b\n", r"t\.csv:2 .*expected 2 cells \(id, text\), got 3"),
        ("t.csv", b"id,txt\n1,a\n", r"t\.csv:1 .*no field 'text', got 'id', 'txt'"),
        ("t.csv", b"text,text\n1,a\n", r"t\.csv:1 .*2 columns are named 'text'"),
        ("t.gz", b"no gzip", "cannot read .*t.gz': Not a gzipped file"),
        ("t.parquet", b"no parquet", "is not a readable parquet file"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_file_is_told_and_leaves_nothing_behind(
    tmp_path: Path, name: str, content: bytes, message: str, workers: int
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AlchemyError, match=message):
        one(tmp_path / "out" / "c", tmp_path / name, workers=workers)
    assert files_below(tmp_path / "out") == {}


def test_sides_of_unequal_length_are_refused_with_the_line(tmp_path: Path) -> None:
    sides = {"en": [written(tmp_path / "t.en", ["a"] * 3)], "de": [written(tmp_path / "t.de", ["a"] * 5)]}
    with pytest.raises(
        AlchemyError, match=r"t\.en has 3 lines, but .*t\.de has 5: line 4 of .*t\.de has no counterpart"
    ):
        build(Recipe(tmp_path / "out" / "c", sides))
    more = {"en": [*sides["en"], sides["de"][0]], "de": [*sides["de"], sides["en"][0]]}  # 8 lines each
    with pytest.raises(AlchemyError, match=r"line 4 of .*t\.de has no counterpart"):
        build(Recipe(tmp_path / "out" / "c", more))
    with pytest.raises(AlchemyError, match="de has 5 lines, but en has 6: line 6 of en has no counterpart"):
        build(Recipe(tmp_path / "out" / "c", sides | {"en": sides["en"] * 2}))
    assert files_below(tmp_path / "out") == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "word"}, "unknown tokenizer 'word'; did you mean 'words'"),
        ({"min_frequency": 0}, "min_frequency must be at least 1, got 0"),
        ({"size": 0}, "size must be at least 1, got 0"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        Recipe(tmp_path / "c", {"": ["t.txt"]}, **options)
    with pytest.raises(AlchemyError, match="no files to build a corpus from"):
        Recipe(tmp_path / "c", {})
    with pytest.raises(AlchemyError, match=r"'\.' is not a valid corpus name; use a name"):
        Recipe(Path(), {"": ["t.txt"]})


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    with pytest.raises(
        AlchemyError, match=r"cannot build .*t\.txt/c: .*(File exists|Not a directory).*no files were left"
    ):
        one(text / "c", text)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AlchemyError, match="is not a regular file; save the data to a file first"):
        one(tmp_path / "c", tmp_path / "pipe")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_is_told_and_leaves_nothing_behind(tmp_path: Path, workers: int) -> None:
    """A limit on the file size simulates a full disk; both cause the same error."""
    text = written(tmp_path / "t.txt", TEXT * 1000)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        with pytest.raises(AlchemyError, match=r"cannot build .*; no files were left behind"):
            one(tmp_path / "out" / "c", text, workers=workers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert files_below(tmp_path / "out") == {}


def test_an_error_far_into_a_file_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_sources, "PIECE_BYTES", 10)
    (tmp_path / "t.txt").write_bytes(b"word\n" * 20 + b"b\xffd\n")
    with pytest.raises(AlchemyError, match=r"t\.txt:21 "):
        one(tmp_path / "c", tmp_path / "t.txt")
    with pytest.raises(AlchemyError, match=r"t\.txt:8 "):
        read_text(Piece(tmp_path / "t.txt", 7, 0, b"\xff"))


def test_empty_rows_are_passed_over_but_never_in_parallel_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\n\nthree\n")
    (tmp_path / "a.jsonl").write_text('{"text": "eins"}\n\n{"text": "drei"}\n')
    for name in ("a.csv", "a.jsonl"):
        assert len(one(tmp_path / f"c-{name}", tmp_path / name)) == 2
        other = written(tmp_path / "b.txt", ["x", "y"])
        with pytest.raises(AlchemyError, match=rf"{re.escape(name)}:[23] empty row"):
            build(Recipe(tmp_path / "c", {"en": [tmp_path / name], "de": [other]}))


def test_a_text_may_be_longer_than_csv_expects(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'text\n"{"word " * 50_000}"\n')
    assert len(one(tmp_path / "c", tmp_path / "a.csv")[0]) == 50_001


@pytest.mark.parametrize("name", ["c.json", "c.bin", "c.idx"])
def test_no_file_of_somebody_else_is_replaced(tmp_path: Path, name: str) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    (tmp_path / name).write_text("precious\n")
    with pytest.raises(
        AlchemyError, match=f"{name} already exists and does not belong to a corpus; choose another name"
    ):
        one(tmp_path / "c", text)
    with pytest.raises(AlchemyError, match=f"{name} is a source file that the corpus would replace"):
        one(tmp_path / "c", tmp_path / name)
    assert (tmp_path / name).read_text() == "precious\n"


def test_a_rebuild_that_is_refused_keeps_the_old_corpus(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    one(tmp_path / "c", text)
    (tmp_path / "c.tokenizer" / "notes.txt").write_text("mine")
    with pytest.raises(AlchemyError, match=r"refusing to replace .* with a tokenizer: it contains notes\.txt"):
        one(tmp_path / "c", written(text, [*TEXT, "more"]))
    assert len(Corpus(tmp_path / "c")) == len(TEXT)
