"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alchemy.files import hash_file, hash_text, hash_tree, write_atomic


def test_write_replaces_whole_files_and_leaves_no_traces(tmp_path: Path) -> None:
    path = tmp_path / "a b 文.json"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == [path.name]


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
