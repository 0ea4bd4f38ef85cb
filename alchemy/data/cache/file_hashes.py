"""Hash files and store the hashes of large files, so they are read only once."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from alchemy.files import hash_file, write_atomic

NAME = "hashes.json"
LARGE = 2**20  # bytes; smaller files are always hashed again
SETTLED = 2.0  # seconds; two writes in quick succession may leave the same timestamp


class Hashes:
    """Content hashes of files. Copying or touching a file does not change its hash.

    The hash of a large file is stored and reused as long as its size, inode, mtime and ctime are unchanged. Programs
    cannot reset the ctime, because the operating system maintains it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.known: dict[str, Any] = {}
        self.dirty = False
        with contextlib.suppress(OSError, ValueError):
            read = json.loads(self.path.read_text("utf-8"))
            self.known = read if isinstance(read, dict) else {}

    def of(self, path: str | Path) -> str:
        """Return the hash of a file."""
        name, stamp = os.path.abspath(path), _stamp(path)
        if stamp[0] < LARGE:
            return hash_file(path)
        known = self.known.get(name)
        if isinstance(known, list) and known[:-1] == stamp:
            return str(known[-1])
        digest = hash_file(path)
        if _stamp(path) == stamp and max(stamp[2:]) < (time.time() - SETTLED) * 1e9:
            self.known[name], self.dirty = [*stamp, digest], True
        return digest

    def save(self) -> None:
        """Save the hashes. If two processes save at the same time, one set of hashes is lost and recomputed later."""
        if self.dirty:
            with contextlib.suppress(OSError):  # the hashes will be recomputed
                existing = {name: row for name, row in self.known.items() if os.path.exists(name)}
                write_atomic(self.path, json.dumps(existing) + "\n")
            self.dirty = False


def _stamp(path: str | Path) -> list[int]:
    found = os.stat(path)
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
