"""Hashes of files, remembered so that large ones are not read again at every start."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from alchemy.files import hash_file, write_atomic

NAME = "hashes.json"
LARGE = 2**20  # smaller files are read each time
SETTLED = 2.0  # seconds: two writes at once may leave the same time behind


class Hashes:
    """What files contain. The content decides, not the time: a copy, or a file that was merely touched, is the same.

    A large file is read once. Its hash is believed again while size, inode and both times are as they were: the time of
    the last change of the inode is kept by the system, and no program can set it back.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.known: dict[str, Any] = {}
        self.news = False
        with contextlib.suppress(OSError, ValueError):
            read = json.loads(self.path.read_text("utf-8"))
            self.known = read if isinstance(read, dict) else {}

    def of(self, path: str | Path) -> str:
        name, stamp = os.path.abspath(path), _stamp(path)
        if stamp[0] < LARGE:
            return hash_file(path)
        known = self.known.get(name)
        if isinstance(known, list) and known[:-1] == stamp:
            return str(known[-1])
        digest = hash_file(path)
        if _stamp(path) == stamp and max(stamp[2:]) < (time.time() - SETTLED) * 1e9:
            self.known[name], self.news = [*stamp, digest], True
        return digest

    def save(self) -> None:
        """Where another process saves at the same time, one of the two reads its files once more."""
        if self.news:
            with contextlib.suppress(OSError):  # they are computed again
                there = {name: row for name, row in self.known.items() if os.path.exists(name)}
                write_atomic(self.path, json.dumps(there) + "\n")
            self.news = False


def _stamp(path: str | Path) -> list[int]:
    found = os.stat(path)
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
