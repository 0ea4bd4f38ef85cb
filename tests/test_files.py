"""Atomic file writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.files import (
    LARGEST_JSON,
    hash_file,
    hash_text,
    hash_tree,
    lock_file,
    open_to_append,
    read_table,
    recover_folder,
    replace_folder,
    write_atomic,
    write_json,
)


def test_write_replaces_whole_files_and_leaves_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "a b 文.json"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == [path.name]


def test_json_is_written_for_people(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "文", "values": [1, None]})
    expected = '{\n "name": "文",\n "values": [\n  1,\n  null\n ]\n}\n'
    assert (tmp_path / "a.json").read_bytes() == expected.encode()


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError, match="surrogates"):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]


def test_hashes_tell_contents_and_names_apart(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    first = hash_tree(tmp_path)
    assert hash_file(tmp_path / "a.py") == hash_text("x")
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert hash_tree(tmp_path) != first


def write_folder(content: str) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        folder.mkdir()
        for name in "abc":
            (folder / name).write_text(content)

    return save


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "best"
    for content in ("one", "two"):
        replace_folder(target, write_folder(content))
    with pytest.raises(AlchemyError, match="wrote nothing; save"):
        replace_folder(target, lambda path: None)
    with pytest.raises(FileExistsError, match="best"):
        replace_folder(target, lambda path: (path.mkdir(), path.mkdir()))
    assert [(target / name).read_text() for name in "abc"] == ["two"] * 3
    assert os.listdir(tmp_path) == ["best"]
    replace_folder(target, lambda path: path.write_text("a file"))
    assert target.read_text() == "a file" and os.listdir(tmp_path) == ["best"]


def test_writers_at_once_do_not_mix_their_folders(tmp_path: Path) -> None:
    target = tmp_path / "best"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: replace_folder(target, write_folder(str(number))), range(100)))
    assert len({(target / name).read_text() for name in "abc"}) == 1
    assert os.listdir(tmp_path) == ["best"]


def test_what_a_killed_writer_left_is_removed_and_a_living_one_left_alone(tmp_path: Path) -> None:
    host = os.uname().nodename
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (tmp_path / f".best.{host}-{pid}.x" / "best").mkdir(parents=True)
    replace_folder(tmp_path / "best", write_folder("one"))
    assert sorted(os.listdir(tmp_path)) == [f".best.{host}-{os.getpid()}.x", "best"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 200_000, "it is nested too deeply"),
        (b"[1]", "it is not a JSON object"),
        (b'{"a": ' + b"1" * 5000 + b"}", "integer string conversion"),
        (b"\xff\xfe{}", "can't decode byte"),
        (b"\0" * 10, "Expecting value"),
        (b"", "Expecting value"),
    ],
)
def test_json_that_is_damaged_is_a_value_error(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        read_table(tmp_path / "a.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.json", "wb") as file:
        file.truncate(LARGEST_JSON + 1)
    with pytest.raises(ValueError, match=r"it is larger than 64.0 MiB"):
        read_table(tmp_path / "a.json")


@pytest.mark.parametrize("use", [read_table, hash_file, open_to_append])
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path, use: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match=r"it is not a regular file|No such device or address"):
        use(tmp_path / "a")


def test_a_device_or_a_folder_is_not_read(tmp_path: Path) -> None:
    for path in (Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="it is not a regular file"):
            hash_file(path)


def test_a_lock_that_is_a_folder_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match=r"is a folder, expected a file; remove it"), lock_file(tmp_path):
        pass


def test_leftovers_behind_a_link_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "outside" / "old-0-best").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".best.host-1.x").symlink_to(tmp_path / "outside")
    recover_folder(tmp_path / "state" / "best", alone=True)
    assert os.listdir(tmp_path / "outside") == ["old-0-best"]
    assert not (tmp_path / "state" / "best").exists()
