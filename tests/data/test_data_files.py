"""Data files are opened with any compression, and errors name the file."""

import bz2
import gzip
import lzma
import sys
from typing import Any

import pytest
import zstandard

from alchemy.data.files import expand, open_bytes, open_text, read_lines
from alchemy.errors import AlchemyError

TEXT = "第一行\nsecond line\n"
PACK: dict[str, Any] = {
    ".txt": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "BOM"])
def test_packed_text_is_read_with_its_line_numbers(tmp_path, suffix, mark):
    path = tmp_path / f"数据 file{suffix}"
    path.write_bytes(PACK[suffix]((mark + TEXT).encode()))
    assert list(read_lines(path)) == [(1, "第一行"), (2, "second line")]


def test_zstandard_frames_follow_each_other(tmp_path):
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.compress(b"x\n" * 90_000) + zstandard.compress(b"y\n"))
    assert sum(1 for _ in read_lines(path)) == 90_001


def test_other_encodings_and_line_ends(tmp_path):
    path = tmp_path / "gbk.txt"
    path.write_bytes("天气\r\n很好".encode("gbk"))
    assert [line for _, line in read_lines(path, encoding="gbk")] == ["天气", "很好"]
    with pytest.raises(AlchemyError, match="unknown encoding 'utf-9'"):
        open_text(path, encoding="utf-9")


def test_bytes_that_are_no_text_are_named_by_file_and_line(tmp_path):
    path = tmp_path / "binary.txt"
    path.write_bytes(b"fine\n" * 10_000 + b"\xff\xfe\n")
    with pytest.raises(AlchemyError, match=r"binary\.txt:10001 is not valid utf-8: invalid start byte \(byte 0xff\)"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("data", "encoding", "line"),
    [
        (b"x,y\n1,red\xff\n", "utf-8", 2),
        (b"x\r\n" * 40_000 + b"\xe4\xb8", "utf-8", 40_001),  # truncated at the end of the file
        (b"x\n" * 32_767 + b"\xe4\xb8\xad\n\xe4x", "utf-8", 32_769),  # a character across a block boundary
        ("a\nb\n".encode("utf-16") + b"\x00\xdc\x00\x00", "utf-16", 3),
    ],
)
def test_the_line_of_bad_bytes_is_the_right_one(tmp_path, data, encoding, line):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(AlchemyError, match=rf"a\.txt:{line} is not valid {encoding}"):
        list(read_lines(path, encoding=encoding))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"no archive"], ids=["cut", "other"]
)
def test_a_damaged_archive_is_an_error_that_names_it(tmp_path, suffix, damage):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(damage(PACK[suffix](TEXT.encode() * 1000)))
    with pytest.raises(AlchemyError, match=r"cannot read .*a\.txt"):
        list(read_lines(path))


def test_a_missing_file_is_an_error_with_a_hint(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(AlchemyError, match=r"file not found: .*trian\.jsonl'; did you mean 'train\.jsonl'"):
        open_bytes(tmp_path / "trian.jsonl")
    with pytest.raises(AlchemyError, match=r"the folder .* does not exist"):
        open_bytes(tmp_path / "nowhere" / "a.txt")
    with pytest.raises(AlchemyError, match="is a folder"):
        open_bytes(tmp_path)
    with pytest.raises(AlchemyError, match="expected a file name, got 3"):
        open_bytes(3)  # type: ignore[arg-type]


def test_patterns_name_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "c.csv"):
        (tmp_path / name).write_text("")
    assert [path.name for path in expand(str(tmp_path / "*.txt"))] == ["a.txt", "b.txt"]
    for name in ("run[1].txt", "run1.txt"):
        (tmp_path / name).write_text("")
    assert [path.name for path in expand(str(tmp_path / "run[1].txt"))] == ["run[1].txt"]
    with pytest.raises(AlchemyError, match="file not found"):
        expand([str(tmp_path / "*.tsv")])
    with pytest.raises(AlchemyError, match="expected a list of files, got 5"):
        expand(5)


def test_a_missing_package_is_said_only_when_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "a.zst"
    path.write_bytes(b"")
    with pytest.raises(AlchemyError, match=r"needs the package zstandard; pip install .alchemy\[data\]"):
        open_bytes(path)


@pytest.mark.parametrize("lines", [3, 30_000])
def test_the_lines_before_one_that_is_no_text_come_first(tmp_path, lines):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n" * lines + b"\xff\ngood\n")
    read = []
    with pytest.raises(AlchemyError, match=rf"a.txt:{lines + 1} is not valid utf-8"):
        for row in read_lines(path):
            read.append(row)
    assert read == [(number, "good") for number in range(1, lines + 1)]


def test_a_tilde_is_the_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x")
    assert expand("~/a.csv") == [tmp_path / "a.csv"]
    assert expand(["~/*.csv"]) == [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(AlchemyError, match="file not found"):
        expand("~/c.csv")
