"""What hides from the key of the cache: members that a class does not tell of, files that a folder does not show."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch.utils.data import Dataset

from alchemy.data.cache.entries import cache_folder, entries
from alchemy.pipeline import ItrDataPipeline
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.lst import Map as ListMap
from tests.pipeline.cache.chains import Upper, names, upper, write


class Slots:
    __slots__ = ("__by", "__dict__", "unset")

    def __init__(self, by: Any) -> None:
        self.__by = by

    def __call__(self, sample: str) -> str:
        return f"{sample}{self.__by}"


class Silent(Upper):
    """Copies of it know nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __call__(self, sample: str) -> str:
        return f"{sample}{self.by}"


class Reduced(Silent):
    def __reduce__(self) -> tuple[Any, ...]:
        return Reduced, (0,)


class Number(int):
    by: Any

    def __call__(self, sample: str) -> str:
        return f"{sample}{self.by}"

    def __repr__(self) -> str:
        return "7"


class Closed(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __call__(self, sample: str) -> str:
        return f"{sample}{self[0]}"


class Place(Silent, os.PathLike[str]):
    def __fspath__(self) -> str:
        return "nowhere"


def number(by: Any) -> Number:
    made = Number(7)
    made.by = by
    return made


@pytest.mark.parametrize("make", [Slots, Silent, Reduced, number, Place, lambda by: Closed([by])])
def test_what_a_class_hides_from_copies_counts(make: Callable[[Any], Any]) -> None:
    for _ in range(2):
        for by in (1, 2):
            assert list(Cache(ListMap(names(), make(by)))) == [f"a{by}", f"b{by}"]
    assert len(entries(cache_folder())) == 2


class Shared:
    by: Any = 1
    table: ClassVar[dict[str, Any]] = {"a": lambda: 1}

    def __call__(self, sample: str) -> str:
        return f"{sample}{self.by}"


def test_what_a_class_gives_to_all_its_objects_counts(monkeypatch: pytest.MonkeyPatch, capture_log: Any) -> None:
    for by in (1, 2, 1):
        monkeypatch.setattr(Shared, "by", by)
        assert list(Cache(ListMap(names(), Shared()))) == [f"a{by}", f"b{by}"]
    assert "the constants of the class tests.pipeline.cache.test_hidden.Shared has changed" in capture_log.text
    assert len(entries(cache_folder())) == 2


class Rows(Dataset[Any]):
    """Nothing but a slot, and a list that it is."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


class Listed(list[Any], Dataset[Any]):
    pass


@pytest.mark.parametrize("make", [list, tuple, Rows, Listed])
def test_a_data_set_of_any_make_is_data(make: Callable[[list[Any]], Any]) -> None:
    for _ in range(2):
        for rows in (["a", "b"], ["a", "c"]):
            assert list(Cache(make(rows))) == rows
            assert list(Cache(ListMap(make(rows), upper))) == [row.upper() for row in rows]
    assert len(entries(cache_folder())) == 4


class Deaf(collections.deque[Any]):
    def __reduce__(self) -> tuple[Any, ...]:
        return Deaf, ()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (Deaf([1]), "Deaf hides its state: it has a __reduce__ of its own, and extends deque"),
        (nested(100_000), "it is nested too deeply to be looked into"),
    ],
)
def test_what_hides_is_not_kept(option: Any, told: str, capture_log: Any) -> None:
    assert list(Cache(ListMap(names(), Upper(option)))) == ["A", "B"]
    assert told in capture_log.text
    assert not cache_folder().exists()


OPTIONS: list[tuple[Any, Any]] = [
    (10**5000, 10**5000 + 1),
    ([10**5000, 1.5], [10**5000, 1.25]),
    (re.compile("a"), re.compile("a", re.IGNORECASE)),
    (1, 1.0),
    (1, True),
    ({1: "a"}, {True: "a"}),
    ([1, 2], [1.0, 2]),
    (0.0, -0.0),
    ({1}, frozenset([1])),
    ("\udcff", "\udcfe"),
    ("\0*/a", "\0*/b"),
    (collections.Counter("ab"), collections.Counter("aab")),
]


@pytest.mark.parametrize("pair", range(len(OPTIONS)))
def test_options_of_any_kind_are_told_apart(pair: int, capture_log: Any) -> None:
    one, other = OPTIONS[pair]
    for option in (one, other, one, other):
        assert list(Cache(ListMap(names(), Upper(option)))) == ["A", "B"]
    assert len(entries(cache_folder())) == 2
    assert "WARNING" not in capture_log.text


# -- what is in a folder

CHANGES: dict[str, Callable[[], Any]] = {
    "hidden file": lambda: write("texts/.a", "2"),
    "file in a hidden folder": lambda: write("texts/.more/a", "2"),
    "empty folder": lambda: Path("texts/empty").mkdir(),
    "link to another": lambda: (Path("texts/link").unlink(), Path("texts/link").symlink_to("two")),
    "name that is no Unicode": lambda: write("texts/\udcff", "2"),
}


class Named(ItrDataPipeline):
    """Has an option, and no use for it."""

    def __init__(self, option: str) -> None:
        super().__init__()
        self.option = option

    def __iter__(self) -> Iterator[str]:
        yield "a"


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("option", ["texts", "./text?", "./texts/**"])
def test_all_of_a_folder_counts(name: str, option: str, capture_log: Any) -> None:
    for folder in ("one", "two"):
        write(f"texts/{folder}/a", folder)
    Path("texts/link").symlink_to("one")
    if "**" not in option:  # Python's own glob would go round in it
        Path("texts/one/loop").symlink_to("..")
    os.mkfifo("texts/fifo")
    for count in (1, 1, 2):
        if count == 2:
            CHANGES[name]()
        assert list(Cache(Named(option))) == ["a"]
        assert len(entries(cache_folder())) == count
    assert "WARNING" not in capture_log.text
