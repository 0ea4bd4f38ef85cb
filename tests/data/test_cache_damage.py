"""Cache entries that are damaged, moved, or removed by another process."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alchemy.data.cache import entries as module
from alchemy.data.cache.entries import Entry, entries, inspect_entry, keep_samples, list_entries, read_entry, remove
from alchemy.data.cache.sample_store import CacheRemoved, NotCacheable, SampleWriter, Stored

KEY = "0123456789abcdef"
ROWS = [{"ids": [1, 2, 3], "text": "one", "n": np.int64(1)}, {"ids": [4], "text": "two", "n": np.int64(2)}]


def filled(root: Path, rows: list[Any] = ROWS, **more: Any) -> Entry:
    def read() -> Iterator[Any]:
        yield from rows

    about = {"chain": ["source"], "facts": {"the file a.txt": "1"}}
    return keep_samples(root, KEY, about, read, **more)[0]  # type: ignore[arg-type]


def flip(path: Path) -> None:
    """Write another content of the same size, with the former modification time."""
    content, before = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewritten(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def harm(folder: Path) -> None:
        fields = json.loads((folder / "manifest.json").read_text())
        change(fields)
        (folder / "manifest.json").write_text(json.dumps(fields))

    return harm


def nothing_but(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "manifest.json").write_text(text)


MANIFESTS: dict[str, Callable[[Path], Any]] = {
    "no JSON": nothing_but("{"),
    "a list": nothing_but("[]"),
    "a number": nothing_but("7"),
    "nothing": nothing_but(""),
    "deep": nothing_but("[" * 100_000),
    "no dict of files": rewritten(lambda fields: fields["layout"].update(files=3)),
    "no layout": rewritten(lambda fields: fields.pop("layout")),
    "no hash": rewritten(lambda fields: fields.pop("hash")),
    "more": rewritten(lambda fields: fields.update(more=1)),
    "facts": rewritten(lambda fields: fields.update(facts=[])),
    "created": rewritten(lambda fields: fields.update(created="today")),
    "samples": rewritten(lambda fields: fields["layout"].update(samples=3)),
    "key": rewritten(lambda fields: fields.update(key="ff")),
    "a folder": lambda folder: ((folder / "manifest.json").unlink(), (folder / "manifest.json").mkdir()),
}
CONTENTS: dict[str, Callable[[Path], Any]] = {
    name: lambda folder, name=name: flip(folder / name)  # type: ignore[misc]
    for name in ("samples.bin", "ends.bin", "arrays.bin", "lengths.bin")
}


@pytest.mark.parametrize("name", [*MANIFESTS, *CONTENTS])
def test_what_is_damaged_is_told_and_made_again(tmp_path: Path, name: str) -> None:
    folder = filled(tmp_path).folder
    (MANIFESTS | CONTENTS)[name](folder)
    found = inspect_entry(folder, "changed")
    assert found is not None
    assert ("manifest.json" if name in MANIFESTS else name) in found.damage
    assert [kept.key for kept in list_entries(tmp_path, "all") if kept.damage] == [KEY]
    assert len(entries(tmp_path)) == (name in CONTENTS)  # listing only checks sizes
    assert list(filled(tmp_path).open()) == ROWS
    assert [kept.damage for kept in list_entries(tmp_path, "all")] == [""]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_byte_of_an_entry_can_change_unseen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = filled(tmp_path_factory.mktemp("cache")).folder
    path = folder / data.draw(st.sampled_from(["manifest.json", *CONTENTS]))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, 2**16)) % len(content)] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    entry = read_entry(folder)
    # other whitespace and number formats of JSON mean the same
    assert entry is None or (path.name == "manifest.json" and list(entry.open()) == ROWS)


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_damaged_can_be_removed(tmp_path: Path, name: str) -> None:
    MANIFESTS[name](filled(tmp_path).folder)
    assert remove(tmp_path, [kept.key for kept in list_entries(tmp_path)]) == [KEY]
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_has_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my notes").mkdir()
    (tmp_path / "hashes.json").write_text("{}")
    assert list_entries(tmp_path) == []


def test_what_was_touched_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled(tmp_path).folder
    compared: list[str] = []
    known = module.is_as_written
    monkeypatch.setattr(module, "is_as_written", lambda path, row: compared.append(path.name) or known(path, row))
    time.sleep(0.02)  # file system clocks are coarse
    os.utime(folder / "samples.bin")
    for _ in range(2):
        entry = read_entry(folder)
        assert entry is not None
        assert "samples.bin" in compared
        time.sleep(0.02)
        entry.touch()
    assert compared.count("samples.bin") == 1


# -- removed or rebuilt by another process


def test_what_is_gone_says_so(tmp_path: Path) -> None:
    entry = filled(tmp_path)
    packed = pickle.dumps(entry.open())
    remove(tmp_path, [KEY])
    with pytest.raises(CacheRemoved, match="was removed or rewritten"):
        entry.open()
    traveled = pickle.loads(packed)  # nothing is opened yet
    with pytest.raises(CacheRemoved, match="was removed or rewritten"):
        traveled[0]


def test_what_was_made_anew_is_not_read_by_the_layout_of_before(tmp_path: Path) -> None:
    packed = pickle.dumps(filled(tmp_path).open())
    remove(tmp_path, [KEY])
    filled(tmp_path, [{**ROWS[0], "ids": [9, 9, 9]}, {**ROWS[1], "ids": [9]}])
    with pytest.raises(CacheRemoved, match="was removed or rewritten"):
        pickle.loads(packed)[0]


def test_two_who_fill_it_at_once_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock file removed together with its entry protects nothing: the other process was first."""
    filled(tmp_path)
    monkeypatch.setattr(module, "launch_id", lambda: "another start")
    entry = filled(tmp_path, overwrite=True)
    assert list(entry.open()) == ROWS
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{KEY}.lock", KEY]


# -- known without reading


def stored(folder: Path, rows: list[Any]) -> Stored:
    folder.mkdir()
    with SampleWriter(folder) as writer:
        for row in rows:
            writer.add(row)
        layout = json.loads(json.dumps(writer.finish()))
    (folder / "manifest.json").write_text(json.dumps({"layout": layout}))
    return Stored(folder, layout)


MAKES: list[Callable[[list[int]], Any]] = [list, np.array, torch.tensor, lambda row: np.array(row, "i1")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(st.integers(-99, 10**6), max_size=9), st.sampled_from(MAKES[:3])), min_size=1))
def test_lengths_are_those_of_the_samples(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    samples = [{"ids": make(row)} for row, make in rows]
    found = stored(tmp_path_factory.mktemp("a") / "b", samples).lengths()
    assert found["ids"].tolist() == [len(row) for row, _ in rows]


def test_whatever_would_be_padded_has_a_length(tmp_path: Path) -> None:
    samples = [
        {"ids": [1, 2], "small": np.array([1, 2, 3], "i1"), "text": "a", "y": 1, "image": np.ones((2, 2)), "some": [1]},
        {"ids": [70000], "small": np.array([], "i1"), "text": "b", "y": 2, "image": np.ones(4)},
    ]
    others: list[dict[str, Any]] = [
        {"mask": [True] * 3, "mixed": [1, 2.5], "pairs": [[1, 2]] * 4, "tuple": (1, 2), "words": ["a"], "one": 1.5},
        {"mask": [], "mixed": [1], "pairs": [], "tuple": (), "words": [], "one": np.float32(1)},
    ]
    samples = [sample | other for sample, other in zip(samples, others, strict=True)]
    found = stored(tmp_path / "a", samples).lengths()
    assert {name: column.tolist() for name, column in found.items()} == {
        "ids": [2, 1],
        "small": [3, 0],
        "image": [2, 4],
        "mask": [3, 0],
        "mixed": [2, 1],
        "pairs": [4, 0],
        "tuple": [2, 0],
    }
    assert list(stored(tmp_path / "b", others)) == others
    assert stored(tmp_path / "c", [[1, 2], [3]]).lengths() == {}


def test_equal_samples_have_one_digest(tmp_path: Path) -> None:
    digests = [stored(tmp_path / str(number), rows).digest for number, rows in enumerate((ROWS, ROWS, ROWS[::-1]))]
    assert digests[0] == digests[1] != digests[2]


def test_what_cannot_be_followed_to_its_end_is_refused(tmp_path: Path) -> None:
    deep: Any = ()
    for _ in range(100_000):
        deep = (deep,)
    round_about: list[Any] = []
    round_about.append(round_about)
    for number, value in enumerate((deep, round_about)):
        with pytest.raises(NotCacheable, match="sample 0 is nested too deeply or contains itself"):
            stored(tmp_path / str(number), [value])


def test_reading_calls_nothing_but_what_makes_arrays(tmp_path: Path) -> None:
    read = stored(tmp_path / "a", [0])
    (tmp_path / "a" / "samples.bin").write_bytes(pickle.dumps(os.getcwd))
    (tmp_path / "a" / "ends.bin").write_bytes(struct.pack("<qq", 0, len(pickle.dumps(os.getcwd))))
    read.layout["files"]["samples.bin"][1] = len(pickle.dumps(os.getcwd))
    (tmp_path / "a" / "manifest.json").write_text(json.dumps({"layout": read.layout}))
    with pytest.raises(pickle.UnpicklingError, match=r"a cached sample tries to call .*getcwd"):
        Stored(tmp_path / "a", read.layout)[0]


def test_names_that_are_no_unicode_come_back(tmp_path: Path) -> None:
    rows = [{"\udcff": 1, "\ud83d\ude00": "\udcfe"}]
    entry = filled(tmp_path, rows)
    assert list(entry.open()) == rows
