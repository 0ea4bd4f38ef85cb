"""Files become rows; errors name the file and line."""

import gzip
import json
import lzma
import sys
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from alchemy.data.loader import get_dataloader
from alchemy.errors import AlchemyError
from alchemy.pipeline import build_datapipes, itr
from alchemy.pipeline.lst import SequenceWrapper

ROWS = [{"label": "1", "text": '天气, "很好"'}, {"label": "0", "text": "b c"}]
LINES = {
    "csv": 'label,text\n1,"天气, ""很好"""\n0,b c\n',
    "tsv": 'label\ttext\n1\t天气, "很好"\n0\tb c\n',
    "jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in ROWS),
}
OPENERS = {"csv": itr.CsvOpener, "tsv": itr.TsvOpener, "jsonl": itr.JsonlOpener}
PACK: dict[str, Any] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


def parquet(path):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "BOM"])
def test_rows_are_read_plain_or_packed(tmp_path, kind, suffix, mark):
    path = tmp_path / f"训练 集.{kind}{suffix}"
    path.write_bytes(PACK[suffix]((mark + LINES[kind]).encode()))
    assert list(OPENERS[kind](SequenceWrapper([str(path)]))) == ROWS
    assert list(OPENERS[kind](str(path))) == ROWS


@pytest.mark.parametrize("suffix", PACK)
def test_parquet_is_read_with_its_length(tmp_path, suffix):
    path = tmp_path / f"a.parquet{suffix}"
    parquet(tmp_path / "plain")
    path.write_bytes(PACK[suffix]((tmp_path / "plain").read_bytes()))
    assert list(itr.ParquetOpener([path])) == ROWS
    assert len(itr.ParquetOpener([path, path])) == 4
    assert list(itr.ParquetOpener([path], columns=["label"])) == [{"label": "1"}, {"label": "0"}]


def test_lines_come_without_their_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("一\r\n\n two \n".encode())
    assert list(itr.LineOpener([path])) == ["一", "", " two "]
    assert list(itr.TxtOpener([path], skip_empty=True)) == ["一", " two "]
    assert build_datapipes([{"type": "alchemy.pipeline.itr.TxtOpener", "datapipe": [str(path)]}])


def test_columns_may_be_named_or_left_as_lists(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1;x\n2;y\n", "utf-8")
    assert list(itr.CsvOpener([path], delimiter=";", header=False)) == [["1", "x"], ["2", "y"]]
    assert list(itr.CsvOpener([path], delimiter=";", header=False, fields=["n", "t"]))[1] == {"n": "2", "t": "y"}
    assert list(itr.CsvOpener([path], delimiter=";", fields=["n", "t"])) == [{"n": "2", "t": "y"}]


BAD = {
    "short": ("csv", "a,b\n1,2\n3\n4,5\n", r"bad\.csv:3 expected 2 cells \(a, b\), got 1", 2),
    "long": ("tsv", "a\tb\n1\t2\t3\n4\t5\n", r"bad\.tsv:2 expected 2 cells \(a, b\), got 3", 1),
    "quote": ("csv", 'a,b\n"x"y,2\n4,5\n', r"bad\.csv:2 is not csv", 1),
    "lines": ("csv", 'a,b\n"1\n2",2\n3\n', r"bad\.csv:4 expected 2 cells", 1),
    "json": ("jsonl", '{"a": 1}\n{"a": \n{"a": 2}\n', r"bad\.jsonl:2 is not JSON", 2),
    "deep": ("jsonl", '{"a": 1}\n' + "[" * 100_000 + "\n", r"bad\.jsonl:2 is JSON that is nested too deep", 1),
}


@pytest.mark.parametrize(("kind", "text", "message", "good"), BAD.values(), ids=BAD)
def test_a_bad_row_is_an_error_or_counted(tmp_path, capture_log, kind, text, message, good):
    path = tmp_path / f"bad.{kind}"
    path.write_text(text, "utf-8")
    with pytest.raises(AlchemyError, match=rf'{message}.*; fix the row, or set bad = "skip"'):
        list(OPENERS[kind]([path]))
    assert len(list(OPENERS[kind]([path], bad="skip"))) == good
    assert "skipped 1 bad rows, the first at line" in capture_log.text


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('a,b\n1,2\n3,"x\n4,5\n', {}, r"bad\.csv:3 a quote is never closed; close the quote, or set quote = ''"),
        ('"a"x,b\n1,2\n', {}, r"bad\.csv:1 is not csv: .*; the first row must be the header"),
        ("a,a,b\n1,2,3\n", {}, r"bad\.csv:1 duplicate column 'a'; rename one, or set `fields`"),
        ("a,b\n1,2\n", {"fields": ["c", "c"]}, "fields duplicate column 'c'"),
    ],
)
@pytest.mark.parametrize("bad", ["error", "skip"])
def test_what_is_wrong_with_a_whole_file_is_an_error_always(tmp_path, text, options, message, bad):
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(AlchemyError, match=message):
        list(itr.CsvOpener([path], bad=bad, **options))


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_cell_may_be_a_whole_document(tmp_path, kind):
    path = tmp_path / f"long.{kind}"
    path.write_text("text\n" + "x" * 200_000 + "\n", "utf-8")
    assert [len(row["text"]) for row in OPENERS[kind]([path])] == [200_000]


@pytest.mark.parametrize("kind", OPENERS)
def test_files_are_looked_for_before_training(tmp_path, kind):
    with pytest.raises(AlchemyError, match="file not found"):
        OPENERS[kind]([str(tmp_path / "missing")])
    with pytest.raises(AlchemyError, match="bad must be one of 'error', 'skip', not the string 'ignore'"):
        OPENERS[kind]([__file__], bad="ignore")


def test_an_error_in_a_worker_reads_as_one_without(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"a": 1}\n{\n', "utf-8")
    loader = get_dataloader(itr.SplitByWorker(itr.JsonlOpener([path])), num_workers=2)
    with pytest.raises(AlchemyError, match="is not JSON") as caught:
        list(loader)
    assert str(caught.value).startswith(f"{path}:2 is not JSON")
    assert "Traceback" not in str(caught.value)


def test_what_is_no_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("no parquet")
    with pytest.raises(AlchemyError, match=r"a\.parquet' is not a readable parquet file"):
        list(itr.ParquetOpener([path]))
    parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 40 + content[44:])  # the first page; the index at the end is intact
    with pytest.raises(AlchemyError, match=r"a\.parquet' is not a readable parquet file"):
        list(itr.ParquetOpener([path]))
    parquet(path)
    with pytest.raises(AlchemyError, match="has no column 'lable'; it has label, text"):
        list(itr.ParquetOpener([path], columns=["lable"]))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AlchemyError, match=r"needs the package pyarrow; pip install 'alchemy\[data\]'"):
        list(itr.ParquetOpener([path]))


def test_a_file_of_blank_lines_yields_nothing_and_the_loader_says_so(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n \n")
    with pytest.raises(
        AlchemyError, match=r"the data is empty: alchemy\.pipeline\.openers\.JsonlOpener yields nothing"
    ):
        list(get_dataloader(itr.Shuffle(itr.JsonlOpener([path]))))


def test_an_opener_needs_names():
    with pytest.raises(AlchemyError, match="datapipe must name at least one file"):
        itr.LineOpener(None)
    with pytest.raises(AlchemyError, match="must be one character"):
        itr.CsvOpener([__file__], delimiter="||")


@pytest.mark.parametrize("kind", [itr.LineOpener, *OPENERS.values()])
def test_files_that_are_all_empty_are_told_before_the_training(kind, tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(AlchemyError, match=r"a.txt is empty; use a file"):
        kind([str(tmp_path / "a.txt")])
    with pytest.raises(AlchemyError, match=r"all 2 files are empty, for example \S+a.txt"):
        kind([str(tmp_path / "*.txt")])
    (tmp_path / "b.txt").write_text('{"a": 1}\n')
    kind([str(tmp_path / "*.txt")])
