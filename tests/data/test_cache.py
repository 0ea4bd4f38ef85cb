"""Cached samples: the same types and values, all or nothing when a fill is killed, one fill for concurrent readers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from alchemy.data.cache import entries as cache
from alchemy.data.cache.entries import Entry, entries, keep_samples, read_entry, remove
from alchemy.data.cache.file_hashes import Hashes
from alchemy.data.cache.sample_store import CacheNotWritable, NotCacheable, SampleWriter, Stored

KEY = "0123456789abcdef"
ABOUT: dict[str, Any] = {"chain": ["source"], "facts": {"the file a.txt": "1"}}

dtypes = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="="),
    arrays.integer_dtypes(endianness=">"),
    arrays.floating_dtypes(endianness="="),
    arrays.unicode_string_dtypes(endianness="=", min_len=1),
    arrays.datetime64_dtypes(endianness="="),
)
ndarrays = arrays.arrays(dtypes, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(max_size=8)
)
numbers = st.one_of(st.lists(st.integers(-(2**70), 2**70)), st.lists(st.floats()), st.lists(st.integers(0, 70000)))
plain = st.one_of(scalars, numbers, ndarrays)
keys = st.one_of(st.text(max_size=3), st.just("$"), st.integers(), st.none())
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=6,
)
samples = st.one_of(st.dictionaries(st.sampled_from(["text", "ids", "y", "", "$"]), values, max_size=4), values)


def same(one: Any, other: Any) -> bool:
    """Check for equality to the last bit, type by type, in the same order."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(repr, one)) == list(map(repr, other)) and all(
            same(a, b) for a, b in zip(one.values(), other.values(), strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return bool(one == other)


def stored(folder: Path, rows: list[Any], *, views: bool = False) -> Stored:
    folder.mkdir()
    with SampleWriter(folder) as writer:
        for row in rows:
            writer.add(row)
        layout = json.loads(json.dumps(writer.finish()))
    (folder / "manifest.json").write_text(json.dumps({"layout": layout}))
    return Stored(folder, layout, views=views)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(rows=st.lists(samples, min_size=1, max_size=6))
def test_samples_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    read = stored(tmp_path_factory.mktemp("kept") / "a", rows)
    assert len(read) == len(rows)
    assert all(same(one, other) for one, other in zip(rows, read, strict=True))


VALUES = [
    np.float32(1.5), np.int64(7), np.str_("x"), np.datetime64("2020-01-01", "s"), torch.arange(3), torch.ones(2, 0),
    torch.tensor(1.5), {1: (2, {3})}, {"$": 1}, frozenset("a"), "\ud83d\ude00", 10**30, [10**30], [True, 1], -0.0,
    np.asfortranarray(np.arange(6).reshape(2, 3)), {"a": np.arange(2)}, [torch.ones(1)],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_comes_back_as_it_was(tmp_path: Path, value: Any) -> None:
    assert all(same(row, value) for row in stored(tmp_path / "whole", [value, value]))
    # at any position, next to others: numbers must be aligned to be read in place
    rows = [{"a": "xyz", "b": value}, {"b": "x", "c": 1}, {"b": value}, {"b": [1.5], "a": None}]
    assert all(same(one, other) for one, other in zip(rows, stored(tmp_path / "field", rows), strict=True))


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (object(), "builtins.object"),
        (np.array([None]), "array of object"),
        (torch.ones(1, requires_grad=True), "requires grad"),
        (torch.ones(1, dtype=torch.bfloat16), "bfloat16"),
        ({"a": {"b": [print]}}, r"cannot store a builtins.builtin_function_or_method \(sample 0, field 'a'\)"),
    ],
)
def test_what_would_not_come_back_is_refused(tmp_path: Path, value: Any, match: str) -> None:
    with pytest.raises(NotCacheable, match=match):
        stored(tmp_path / "a", [value])


def test_fields_that_come_and_go(tmp_path: Path) -> None:
    rows: list[Any] = [{"a": n} for n in range(9000)] + [{"b": [n], "a": n} for n in range(9000)] + [7, {}]
    rows += [{f"field {n}": n} for n in range(200)]  # more than are stored separately
    read = stored(tmp_path / "a", rows)
    assert list(read) == rows
    assert read.lengths() == {}


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    rows = [{"ids": np.arange(1000) + n, "image": np.full((50, 50), n, "f4")} for n in range(50)]
    read = stored(tmp_path / "a", rows, views=True)
    for view in read[7].values():
        assert not view.flags.writeable
        assert view.flags.aligned
    # the file is memory-mapped: later writes to it are visible
    with open(tmp_path / "a" / "arrays.bin", "r+b") as file:
        file.seek((8000 + 10000) * 3)
        file.write(np.int64(-1).tobytes())
    assert read[3]["ids"][0] == -1
    assert read[-1]["image"].tobytes() == rows[-1]["image"].tobytes()


def test_copies_may_be_changed_and_the_file_stays(tmp_path: Path) -> None:
    read = stored(tmp_path / "a", [{"ids": np.arange(3)}])
    read[0]["ids"][0] = 9
    assert read[0]["ids"].tolist() == [0, 1, 2]


def test_maps_do_not_travel(tmp_path: Path) -> None:
    read = stored(tmp_path / "a", [{"ids": np.arange(10**5)}])
    packed = pickle.dumps(read)
    assert len(packed) < 2000
    assert same(pickle.loads(packed)[0], read[0])
    with pytest.raises(IndexError, match="sample 1 is out of range for 1 samples"):
        read[1]


# -- entries


def fill(root: Path, rows: Callable[[], Iterator[Any]], key: str = KEY, **more: Any) -> tuple[Entry, bool]:
    return keep_samples(root, key, ABOUT, rows, **more)  # type: ignore[arg-type]


def some(count: int = 3) -> Iterator[Any]:
    yield from ({"n": n, "text": f"number {n}"} for n in range(count))


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    first, made = fill(tmp_path, some)
    again, made_again = fill(tmp_path, lambda: some(9))
    assert (made, made_again) == (True, False)
    assert list(again.open()) == list(first.open()) == list(some())
    assert (again.samples, again.data) == (3, ["a.txt"])
    assert [entry.key for entry in entries(tmp_path)] == [KEY]


def test_what_is_overwritten_is_made_again_and_readers_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fill(tmp_path, some)[0].open()
    monkeypatch.setattr(cache, "launch_id", lambda: "another start")
    new, made = fill(tmp_path, lambda: some(5), overwrite=True)
    assert made
    assert list(new.open()) == list(some(5))
    assert list(old) == list(some())  # the files are mapped
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [KEY]


@pytest.mark.parametrize("harm", ["cut", "lost", "no manifest", "bad manifest", "other key"])
def test_a_damaged_entry_is_made_again(tmp_path: Path, harm: str) -> None:
    folder = fill(tmp_path, some)[0].folder
    if harm == "cut":
        os.truncate(folder / "samples.bin", 3)
    elif harm == "lost":
        (folder / "ends.bin").unlink()
    elif harm == "no manifest":
        (folder / "manifest.json").unlink()
    else:
        text = "{" if harm == "bad manifest" else (folder / "manifest.json").read_text().replace(KEY, "ff")
        (folder / "manifest.json").write_text(text)
    assert read_entry(folder) is None
    entry, made = fill(tmp_path, some)
    assert made
    assert list(entry.open()) == list(some())


def test_an_error_of_the_data_is_not_one_of_the_disk_and_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield 1
        raise FileNotFoundError("of the data")

    with pytest.raises(FileNotFoundError, match="of the data"):
        fill(tmp_path, broken)
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CacheNotWritable, match="No space left"):
        fill(tmp_path, lambda: _on_a_full_disk(some(3)))
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheNotWritable, match=r"File exists|Not a directory"):
        fill(tmp_path / "file", some)


def _on_a_full_disk(rows: Iterator[Any]) -> Iterator[Any]:
    yield from rows
    # every open file of the samples fails on write
    full = os.open("/dev/full", os.O_WRONLY)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if f"/.{KEY}." in path and not path.endswith(".lock"):
                os.dup2(full, int(name))
    os.close(full)


def test_removing(tmp_path: Path) -> None:
    fill(tmp_path, some)
    fill(tmp_path, some, key="ff")
    (tmp_path / f".{KEY}.part-abc").mkdir()
    (tmp_path / ".ff.part-abc").mkdir()
    assert remove(tmp_path, ["ff"]) == ["ff"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{KEY}.lock", KEY]


def test_ranks_of_one_start_know_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = cache.launch_id()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_PORT", "1234")
    one = cache.launch_id()
    monkeypatch.setenv("RANK", "1")
    assert cache.launch_id() == one != alone
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert cache.launch_id() != one


# -- kills and concurrent fills


def slow(count: int, seconds: float) -> Iterator[Any]:
    for row in some(count):
        time.sleep(seconds / count)
        yield row


def forked(work: Callable[[], bool]) -> int:
    """Return the id of a process that does the work, in its own process group, with a child that outlives it."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        if not os.fork():
            time.sleep(1)
            os._exit(0)
        code = 0 if work() else 1
    finally:
        os._exit(code)


def test_a_fill_that_is_killed_leaves_the_whole_or_nothing(tmp_path: Path) -> None:
    """50 kills at random moments, of a whole group or of its leader alone; often two of them fill at once."""
    draw, count = random.Random(3), 400
    wanted = list(some(count))

    def work() -> bool:
        return list(fill(tmp_path, lambda: slow(count, 0.04))[0].open()) == wanted

    whole = 0
    for number in range(50):
        others = [forked(work)] if number % 3 == 0 else []
        pid = forked(work)
        time.sleep(draw.uniform(0.0, 0.07))
        with contextlib.suppress(ProcessLookupError):  # its group may not exist yet
            (os.killpg if number % 2 else os.kill)(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert [os.waitpid(other, 0)[1] for other in others] == [0] * len(others)
        entry = read_entry(tmp_path / KEY)
        assert entry is not None or not others
        if entry is not None:
            assert list(entry.open()) == wanted
            whole += 1
            remove(tmp_path, [KEY])
    assert 17 <= whole < 50
    assert work()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".{KEY}.lock", KEY]


def test_many_at_once_fill_it_once(tmp_path: Path) -> None:
    def rows() -> Iterator[Any]:
        (tmp_path / f"filled by {os.getpid()}").touch()
        yield from slow(100, 0.1)

    pids = [forked(lambda: list(fill(tmp_path / "cache", rows)[0].open()) == list(some(100))) for _ in range(5)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 5
    assert len(list(tmp_path.glob("filled by *"))) == 1


def test_who_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    reading, writing = os.pipe()

    def tell(text: str, *words: object) -> None:
        told.append(text.format(*words))
        os.write(writing, b"x")

    def until_told() -> Iterator[Any]:
        yield from some(99)
        os.read(reading, 1)
        yield list(some(100))[-1]

    monkeypatch.setattr(cache, "FIRST_NOTICE", 0.05)
    monkeypatch.setattr(cache.logger, "info", tell)
    pid = forked(lambda: list(fill(tmp_path, until_told)[0].open()) == list(some(100)))
    while not list(tmp_path.glob(f".{KEY}.*/{KEY}")):
        time.sleep(0.01)
    assert remove(tmp_path, [KEY]) == []
    entry, made = fill(tmp_path, some)
    assert os.waitpid(pid, 0)[1] == 0
    assert (entry.samples, made) == (100, False)
    assert told[0].startswith("cache 0123456789ab: another process is writing it; waited ")


# -- hashes of files


def test_a_large_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.data.cache import file_hashes

    monkeypatch.setattr(file_hashes, "LARGE", 10)
    monkeypatch.setattr(file_hashes, "SETTLED", 0.0)
    path = tmp_path / "a.txt"
    path.write_text("a" * 20)
    first = Hashes(tmp_path)
    digest = first.of(path)
    first.save()
    monkeypatch.setattr(file_hashes, "hash_file", lambda path: "read")
    assert Hashes(tmp_path).of(path) == digest
    before = path.stat()
    path.write_text("b" * 20)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the change time of an inode cannot be set back
    assert Hashes(tmp_path).of(path) == "read"
    (tmp_path / "hashes.json").write_text("[")
    assert Hashes(tmp_path).of(path) == "read"


def test_a_file_that_has_just_been_written_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.data.cache import file_hashes

    monkeypatch.setattr(file_hashes, "LARGE", 10)
    (tmp_path / "a.txt").write_text("a" * 20)
    known = Hashes(tmp_path)
    known.of(tmp_path / "a.txt")
    known.save()
    assert not (tmp_path / "hashes.json").exists()
