"""Measure how much disk space a record uses, by kind of file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# the kinds of files, by the first part of their path in the record; everything else is `other`
_KINDS = {
    "checkpoints": ("state", "checkpt", "bad"),
    "results": ("results", "media", "export"),
    "logs": ("run.log", "metrics.jsonl", "ledger.jsonl", "media.jsonl", "profile"),
    "code": ("backup",),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
KINDS = (*_KINDS, "other")


class RecordFile(NamedTuple):
    """A file of a record: its path in the record, size, identity, which hard links share, and time."""

    name: str
    bytes: int
    inode: tuple[int, int]
    links: int
    modified: float


@dataclass
class DiskUsage:
    """The bytes of each kind of file, and the number of files."""

    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    files: int = 0

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def kind_of_file(name: str) -> str:
    """Return the kind of a file by its path in the record.

    >>> kind_of_file("state/u10/model.safetensors"), kind_of_file("run.log"), kind_of_file("README.md")
    ('checkpoints', 'logs', 'other')
    """
    first = name.partition("/")[0]
    return "logs" if first.startswith("events.out.tfevents.") else _KIND_OF.get(first, "other")


def list_files(folder: str | Path) -> Iterator[RecordFile]:
    """Yield the regular files below a folder, without following links; what cannot be read is skipped."""
    root = os.fspath(folder)
    for folder_path, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = os.path.join(folder_path, name)
            try:
                found = os.lstat(path)
            except OSError:  # deleted in the meantime
                continue
            if stat.S_ISREG(found.st_mode):
                relative = path[len(root) :].lstrip(os.sep)
                yield RecordFile(relative, found.st_size, (found.st_dev, found.st_ino), found.st_nlink, found.st_mtime)


def measure_usage(folder: str | Path, seen: set[tuple[int, int]] | None = None) -> DiskUsage:
    """Return the disk usage of a record. Hard links are counted once; `seen` extends that to several records."""
    seen, usage = set() if seen is None else seen, DiskUsage()
    for file in list_files(folder):
        usage.files += 1
        if file.inode not in seen:
            seen.add(file.inode)
            usage.bytes[kind_of_file(file.name)] += file.bytes
    return usage


def freed_bytes(folders: list[Path]) -> int:
    """Return the bytes that deleting some folders frees: a file with a hard link elsewhere keeps its space."""
    counts: dict[tuple[int, int], list[int]] = {}  # links left over, and size
    for folder in folders:
        for file in list_files(folder):
            counts.setdefault(file.inode, [file.links, file.bytes])[0] -= 1
    return sum(size for left, size in counts.values() if left == 0)
