"""What a chain reads while it is filled, and what its code finds as it is now: neither is named by an option."""

from __future__ import annotations

import importlib
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alchemy.data.cache import hashes, readset
from alchemy.data.cache.entries import cache_folder, entries
from alchemy.data.cache.hashes import Hashes
from alchemy.pipeline import LstDataPipeline, itr
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.lst import Map as ListMap
from tests.pipeline.cache.chains import forget, names, write

CODE = """
import glob, os, pathlib, threading
import kept.deep.inner

LOW: bool = False
TABLE = {}
LOCK = threading.Lock()
OPEN = (letter for letter in 'ab')

class Config:
    low = False

CFG = Config()

def low(s): return s.lower() if LOW else s.upper()
def table(s):
    with LOCK:
        return [TABLE.get(key) for key in "x"]
def config(s): return [CFG.low]
def helper(by=1): return [by, TABLE.get("x")]
def calls(s): return helper()
def default(s, *, by=1): return [by]
def package(s): return kept.deep.SIZE
def unknown(s): return str(OPEN)[:3]
def read(path):
    with open(path) as file:
        return file.read()
def globbed(s): return [read(path) for path in sorted(glob.glob("li?ts/*"))]
def listed(s): return sorted(os.listdir("li" + "sts"))
def walked(s): return sorted(path.name for path in pathlib.Path("li" + "sts").iterdir())
def opened(s): return read("li" + "sts/" + s)
def absent(s):
    try: return read("li" + "sts/new")
    except OSError: return None
"""


@pytest.fixture
def code() -> Any:
    write("kept/deep/__init__.py", "SIZE = 1\n")
    write("kept/deep/inner.py", "")
    write("kept/code.py", CODE)
    write("lists/a", "1")
    forget()
    return importlib.import_module("kept.code")


def other(s: str, *, by: int = 3) -> list[Any]:
    return ["other"]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "low": lambda code: setattr(code, "LOW", True),
    "table": lambda code: code.TABLE.update(x=2),
    "config": lambda code: setattr(code.CFG, "low", True),
    "calls": lambda code: setattr(code, "helper", other.__get__("")),
    "default": lambda code: code.default.__kwdefaults__.update(by=2),
    "globbed": lambda code: write("lists/b", "2"),
    "listed": lambda code: write("lists/b", "2"),
    "walked": lambda code: write("lists/b", "2"),
    "opened": lambda code: write("lists/a", "2"),
    "absent": lambda code: write("lists/new", "2"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_is_never_read_as_it_was(name: str, code: Any) -> None:
    def kept() -> list[Any]:
        return list(Cache(ListMap(names("a"), getattr(code, name)), strict=True))

    before = kept()
    assert kept() == before
    assert len(entries(cache_folder())) == 1
    CHANGES[name](code)
    assert kept() == list(ListMap(names("a"), getattr(code, name))) != before


def test_a_file_named_in_the_data_is_told(capture_log: Any, code: Any) -> None:
    for text in ("1", "2"):
        write("lists/a", text)
        assert list(Cache(itr.Map(names("a"), code.opened), strict=True)) == [text]
    assert "it is made again: lists/a has changed, which is read on the way" in capture_log.text
    os.utime("lists/a")
    assert list(Cache(itr.Map(names("a"), code.opened))) == ["2"]
    assert capture_log.text.count("are kept") == 2


def test_a_package_counts_where_a_module_in_it_is_imported(code: Any) -> None:
    assert list(Cache(ListMap(names(), code.package))) == [1, 1]
    write("kept/deep/__init__.py", "SIZE = 22\n")
    forget()
    assert list(Cache(ListMap(names(), importlib.import_module("kept.code").package))) == [22, 22]


def test_what_code_finds_and_cannot_be_looked_into_is_not_kept(capture_log: Any, code: Any) -> None:
    assert len(list(Cache(ListMap(names(), code.unknown)))) == 2
    assert "OPEN of kept.code.unknown: a builtins.generator cannot be looked into: cannot pickle" in capture_log.text


def test_files_that_change_while_they_are_read_or_are_too_many_are_not_kept(
    capture_log: Any, code: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = readset.ReadSet()
    with reads:
        write("lists/a", code.opened("a") + "1")
    with pytest.raises(readset.Unkept, match="lists/a changed while it was read"):
        reads.settled({}, Hashes(Path()))
    monkeypatch.setattr(readset, "MOST", 0)
    assert list(Cache(itr.Map(names("a"), code.opened))) == ["11"]
    assert "more than 0 files were read, too many to compare each time" in capture_log.text


class Given(LstDataPipeline):
    shared: Any = None

    def __init__(self, datapipe: Any, ranks: Any) -> None:
        super().__init__(datapipe)
        self.ranks = ranks

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        return str((self.ranks, self.shared))


@pytest.mark.parametrize("pair", [(np.array([1]), np.array([2])), (re.compile("a"), re.compile("b"))])
def test_members_of_any_name_and_what_a_class_shares_count(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in pair:
        monkeypatch.setattr(Given, "shared", shared)
        for ranks in (1, 2):
            assert list(Cache(Given(names(), ranks))) == [str((ranks, shared))]


def test_a_cache_knows_the_one_before_it_by_its_samples(code: Any) -> None:
    for text in ("1", "2"):
        write("lists/a", text)
        assert list(Cache(ListMap(Cache(ListMap(names("a"), code.opened)), str.strip))) == [text]


def test_what_a_program_writes_by_mapping_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "SETTLED", -60)
    Path("large").write_bytes(bytes(2 * hashes.LARGE))
    found, known = [], Hashes(Path())
    with open("large", "r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for number in range(3):
            content[5] = number
            found.append(known.of("large"))
    assert len(set(found)) == 3
