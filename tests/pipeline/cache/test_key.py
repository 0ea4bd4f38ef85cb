"""The key of the cache for chains built in Python, and chains without a key."""

from __future__ import annotations

import collections
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from alchemy.data.cache.entries import cache_folder, entries
from alchemy.errors import AlchemyError
from alchemy.pipeline import ItrDataPipeline
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.lst import Map as ListMap
from alchemy.text import Words
from tests.pipeline.cache.chains import (
    CALLS,
    Folder,
    Upper,
    names,
    tokenizer,
    upper,
    write,
)


class Option(Folder):
    """Read the folder `texts`, with an option that names a folder."""

    def __init__(self, option: Any) -> None:
        super().__init__("texts")
        self.option = option


def test_a_folder_that_holds_everything_is_never_kept_in_silence(capture_log: Any) -> None:
    write("texts/a", "1")
    assert list(Cache(Option("."))) == ["1"]
    assert "not used, computing the samples again: pipe 0 (" in capture_log.text
    assert "the folder '.' contains the current folder" in capture_log.text


class Named(ItrDataPipeline):
    """Has an unused option."""

    def __init__(self, option: Any) -> None:
        super().__init__()
        self.option = option

    def __iter__(self) -> Iterator[str]:
        yield "a"


CHANGES: dict[str, Callable[[], Any]] = {
    "hidden file": lambda: write("texts/.a", "2"),
    "file in a hidden folder": lambda: write("texts/.more/a", "2"),
    "link to another": lambda: (Path("texts/link").unlink(), Path("texts/link").symlink_to("two")),
    "name that is no Unicode": lambda: write("texts/\udcff", "2"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("option", ["texts", "./text?", "./texts/**", ["texts"]])
def test_all_files_of_a_folder_count(name: str, option: Any, capture_log: Any) -> None:
    for folder in ("one", "two"):
        write(f"texts/{folder}/a", folder)
    Path("texts/link").symlink_to("one")
    if "**" not in option:  # Python's glob would follow the loop
        Path("texts/one/loop").symlink_to("..")
    os.mkfifo("texts/fifo")
    for count in (1, 1, 2):
        if count == 2:
            CHANGES[name]()
        assert list(Cache(Named(option))) == ["a"]
        assert len(entries(cache_folder())) == count
    assert "WARNING" not in capture_log.text


def test_a_folder_counts_with_its_files(capture_log: Any) -> None:
    write("texts/a", "1")
    assert list(Cache(Folder("texts"))) == ["1"]
    write("texts/a", "2")
    assert list(Cache(Folder("texts"))) == ["2"]
    assert "cannot reuse " in capture_log.text and ": the file texts/a has changed" in capture_log.text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (upper, functools.partial(upper, by=1)),
        (functools.partial(upper, by=1), functools.partial(upper, by=2)),
        (functools.partial(upper, by={1, 2}), functools.partial(upper, by=[1, 2])),
        (Upper(1), Upper(True)),
        (Upper(np.zeros(2)), Upper(np.zeros(2, "f4"))),
        (Upper(torch.zeros(2)), Upper(torch.ones(2))),
        (Upper({"a": Path("x")}), Upper({"a": Path("y")})),
        (Upper(Words.train(["a b"])), Upper(Words.train(["a b c"]))),
        (tokenizer("a", "b"), tokenizer("b", "c", "c")),
        (str.upper, str.lower),
    ],
)
def test_options_are_told_apart(one: Any, other: Any) -> None:
    for fn in (one, other, one, other):
        data = ListMap(names(), fn)
        assert list(Cache(data)) == [fn("a"), fn("b")]
    assert len(entries(cache_folder())) == 2


def test_equal_options_are_the_same() -> None:
    for _ in range(2):
        kept = Cache(ListMap(names(), Upper({"a": [1, 2.5, None, {"x", "y"}], "t": Words.train(["a b"])})))
        assert list(kept) == ["A", "B"]
    assert CALLS == ["a", "b"]


def test_a_cache_may_stand_behind_another() -> None:
    for text in ("a", "a", "b"):
        assert list(Cache(ListMap(Cache(ListMap(names(text), upper)), upper))) == [text.upper()]
    assert CALLS == ["a", "A", "b", "B"]


def test_texts_in_memory_are_data() -> None:
    assert [list(Cache(ListMap(names(text), upper))) for text in ("a", "b", "a")] == [["A"], ["B"], ["A"]]
    assert CALLS == ["a", "b"]


class Rows(Dataset[Any]):
    """Has only a slot."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Listed(list[Any], Dataset[Any]):  # type: ignore[misc]
    pass


@pytest.mark.parametrize("make", [list, tuple, Rows, Listed])
def test_a_data_set_of_any_make_is_data(make: Callable[[list[Any]], Any]) -> None:
    for _ in range(2):
        for rows in (["a", "b"], ["a", "c"]):
            assert list(Cache(make(rows))) == rows
            assert list(Cache(ListMap(make(rows), upper))) == [row.upper() for row in rows]
    assert len(entries(cache_folder())) == 4


OPTIONS: list[tuple[Any, Any]] = [
    ([10**50, 1.5], [10**50, 1.25]),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (1, 1.0),
    (1, True),
    ({1: "a"}, {True: "a"}),
    ([1, 2], [1.0, 2]),
    ([1, 2], (1, 2)),
    (["a"], ("a",)),
    (0.0, -0.0),
    ({1}, [1]),
    ("\udcff", "\udcfe"),
    ("\0*/a", "\0*/b"),
    (collections.Counter("ab"), collections.Counter("aab")),
    ({"a": 1}.get, {"a": 2}.get),
]


@pytest.mark.parametrize("pair", range(len(OPTIONS)))
def test_options_of_any_kind_are_told_apart(pair: int, capture_log: Any) -> None:
    one, other = OPTIONS[pair]
    for option in (one, other, one, other):
        assert list(Cache(ListMap(names(), Upper(option)))) == ["A", "B"]
    assert len(entries(cache_folder())) == 2
    assert "WARNING" not in capture_log.text


def test_a_list_of_lists_does_not_come_back_as_one_of_tuples() -> None:
    assert [list(Cache(make([[1], ["a"]]))) for make in (list, lambda rows: [*map(tuple, rows)])] == [
        [[1], ["a"]],
        [(1,), ("a",)],
    ]


def test_a_cache_knows_the_one_before_it_by_its_samples() -> None:
    for text in ("1", "2"):
        write("lists/a", text)
        assert list(Cache(ListMap(Cache(Folder("lists")), str.strip))) == [text]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def generator() -> Iterator[int]:
    yield 1


class Nameless(Words):
    def contents(self) -> dict[str, bytes]:
        raise NotImplementedError


UNKNOWN = {
    "lambda": (lambda: ListMap(names(), lambda text: upper(text)), "is a lambda or a nested function"),
    "generator": (
        lambda: ListMap(names(), Upper(generator())),
        "cannot be hashed: cannot pickle 'generator' object",
    ),
    "lock": (lambda: ListMap(names(), Upper([threading.Lock()])), "cannot be hashed"),
    "deep": (lambda: ListMap(names(), Upper(nested(100_000))), "contains a value that cannot be hashed"),
    "tokenizer": (lambda: ListMap(names(), Upper(Nameless.train(["a b"]))), "does not define options()"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_has_no_key_is_never_kept_in_silence(name: str, capture_log: Any) -> None:
    make, told = UNKNOWN[name]
    for _ in range(2):
        assert list(Cache(make())) == ["A", "B"]
    assert capture_log.text.count("WARNING cache: not used, computing the samples again: pipe 1 (") == 2
    assert told in capture_log.text
    assert len(CALLS) == 4
    assert not cache_folder().exists()
    with pytest.raises(AlchemyError, match="cannot cache the samples: pipe 1 "):
        Cache(make(), strict=True)
