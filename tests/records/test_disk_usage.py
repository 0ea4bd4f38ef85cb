"""The disk usage of a record: by kind of file, with hard links counted once."""

from __future__ import annotations

import os
from pathlib import Path

from alchemy.records.disk_usage import freed_bytes, list_files, measure_usage


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_files_are_counted_by_kind_and_links_once(tmp_path: Path) -> None:
    weights = write(tmp_path / "state/u1/model.safetensors", 1000)
    (tmp_path / "state/best").mkdir()
    os.link(weights, tmp_path / "state/best/model.safetensors")
    for name, size in {"run.log": 10, "results/a": 20, "backup/src/a.py": 30, "README.md": 5}.items():
        write(tmp_path / name, size)
    usage = measure_usage(tmp_path)
    assert usage.bytes == {"checkpoints": 1000, "results": 20, "logs": 10, "code": 30, "other": 5}
    assert (usage.total, usage.files) == (1065, 6)


def test_links_and_special_files_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside", 100)
    record = tmp_path / "record"
    record.mkdir()
    (record / "link").symlink_to(tmp_path / "outside")
    (record / "all").symlink_to(tmp_path)
    os.mkfifo(record / "fifo")
    assert list(list_files(record)) == []
    assert measure_usage(tmp_path / "gone").total == 0


def test_a_file_with_a_link_elsewhere_frees_nothing(tmp_path: Path) -> None:
    one = write(tmp_path / "a/x", 100)
    write(tmp_path / "a/y", 10)
    (tmp_path / "b").mkdir()
    os.link(one, tmp_path / "b/x")
    assert freed_bytes([tmp_path / "a"]) == 10
    assert freed_bytes([tmp_path / "a", tmp_path / "b"]) == 110
