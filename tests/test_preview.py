"""What `check` reports about the files of a config without running it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alchemy.config.check import check_all
from alchemy.config.load import prepare_cfg
from alchemy.preview import MOST_BYTES, preview_files

TASKS = {
    "Translation": 'tokenizer = "Words"',
    "Tagging": 'tokenizer = "Words"\nscheme = "BIO"',
    "Relation": 'tokenizer = "Words"',
    "Classification": 'tokenizer = "Words"',
}


def problems_of(task: str, data: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    text = f'[task]\ntype = "{task}"\n{TASKS[task]}\n[task.data]\n{data}\n'
    Path("train.toml").write_text(text, encoding="utf-8")
    every = check_all([prepare_cfg("train.toml")], strict=False, roots=["."], more=[preview_files])
    return [str(problem) for problem in every if "[task.data]" in str(problem)]


@pytest.mark.parametrize(
    ("task", "data", "files", "message"),
    [
        ("Translation", 'train = "a.csv"\nsource = "en"\ntarget = "ed"', {"a.csv": "en,de\na,b\n"}, "no column 'ed'"),
        ("Translation", 'train = "a.tsv"', {"a.tsv": "one row\teine Zeile\n"}, ""),
        ("Translation", 'train = ["a.en", "a.de"]', {"a.en": "a\n", "a.de": ""}, "a.de is empty"),
        ("Translation", 'train = "a.jsonl"', {"a.jsonl": '{"en": "a", "de": "b"}\n'}, "no column 'source'"),
        ("Tagging", 'train = "a.txt"', {"a.txt": "-DOCSTART- O\n\nBonn B\nis O\n"}, ""),
        ("Tagging", 'train = "a.txt"', {"a.txt": "Bonn\nis\n"}, "token and tag are the same column of a.txt"),
        ("Tagging", 'train = "a.txt"\ntag = 3', {"a.txt": "Bonn B\n"}, "no column 3 in a.txt: its first line has 2"),
        ("Relation", 'train = "a.tsv"\ntext = 2', {"a.tsv": "r\t<e1> a </e1> <e2> b </e2>\n"}, "has no column 2"),
        ("Relation", 'train = "a.tsv"', {"a.tsv": "r\t<e1> a </e1> <e2> b </e2>\n"}, ""),
        ("Classification", 'train = "a.json"\ntext = "t"', {"a.json": '[{"text": "a"}]'}, "no column 't'"),
        ("Classification", 'train = "a.txt"\nformat = "label text"', {"a.txt": "sport a goal\n"}, ""),
        ("Classification", 'train = "a.csv"\ntext = 1\nlabel = 0', {"a.csv": "sport,a goal\n"}, ""),
        (
            "Classification",
            'train = "a.csv"\nencoding = "rot13"',
            {"a.csv": "text,label\n"},
            "unknown encoding 'rot13'",
        ),
        ("Classification", 'train = "a.csv"\nencoding = 3', {"a.csv": "text,label\n"}, "must be a string"),
    ],
)  # fmt: skip
def test_files_are_looked_into(task, data, files, message, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = problems_of(task, data, tmp_path, monkeypatch)
    assert (len(found) == 1 and message in found[0]) if message else found == []


def test_a_large_file_is_read_in_part(tmp_path, monkeypatch):
    text = "text,label\n" + "天气很好,news\n" * MOST_BYTES
    (tmp_path / "a.csv").write_bytes(text.encode() + b"\xff\xff")  # only the first bytes are read
    assert problems_of("Classification", 'train = "a.csv"', tmp_path, monkeypatch) == []


def test_a_row_without_an_end_and_a_fifo_are_left_to_the_run(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a" * MOST_BYTES * 2)
    os.mkfifo(tmp_path / "b.csv")
    assert problems_of("Classification", 'train = "a.csv"\ndev = "b.csv"', tmp_path, monkeypatch) == []


def test_columns_of_files_outside_the_folder_are_not_listed(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("user,password\nroot,1234\n")
    (tmp_path / "here").mkdir()
    for path in (tmp_path / "a.csv", "../a.csv"):
        (found,) = problems_of("Classification", f'train = "{path}"', tmp_path / "here", monkeypatch)
        assert "none of its 2 columns has that name" in found and "password" not in found
