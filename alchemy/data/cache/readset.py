"""What a chain reads while a cache is filled, and no option names: files whose names stand in the data, or in code."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from alchemy.data.cache.hashes import SETTLED, Hashes
from alchemy.data.cache.sources import STANDARD
from alchemy.data.cache.values import Unkept
from alchemy.files import hash_text, home

MOST = 200_000  # files that are compared each time
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NOT_DATA = ("/proc/", "/dev/", "/sys/", *(f"{folder}{os.sep}" for folder in STANDARD if folder))
LISTERS = (glob.__file__, "<frozen importlib._bootstrap_external>")  # these are heard otherwise, or read code
Stamp = list[int] | None  # None: there is no such file
_active: list[ReadSet] = []
_hooked: list[bool] = []  # a hook cannot be taken away again


class ReadSet(contextlib.AbstractContextManager["ReadSet"]):
    """Inside, notes each file that Python opens to be read, in whichever thread, and each pattern that it looks for."""

    def __init__(self) -> None:
        self.files: dict[str, Stamp] = {}
        self.patterns: dict[str, bool] = {}

    def __enter__(self) -> ReadSet:
        if not _hooked:
            sys.addaudithook(_heard)
            _hooked.append(True)
        self.own = f"{home()}{os.sep}"
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.remove(self)

    def note(self, path: str) -> None:
        if path not in self.files and len(self.files) <= MOST and self._is_data(path):
            found = _stamp(path)
            if found != []:
                self.files[path] = found

    def note_pattern(self, pattern: str, deep: bool) -> None:
        if self._is_data(pattern):
            self.patterns[pattern] = deep

    def _is_data(self, path: str) -> bool:
        full = os.path.abspath(path)
        ours = full.endswith((".py", ".pyc")) or full.startswith((self.own, *NOT_DATA))
        return not ours and "-packages/" not in full

    def settled(self, known: dict[str, str], hashes: Hashes) -> dict[str, dict[str, list[Any]]]:
        """Each with a hash, and files with the stamp that tells that it need not be computed again; raises Unkept."""
        if len(self.files) > MOST:
            raise Unkept(f"more than {MOST:,} files were read, too many to compare each time")
        named = {os.path.abspath(path) for path in known}
        found = {path: row for path, row in self.files.items() if not (path in known or os.path.abspath(path) in named)}
        rows = {path: [_hash(path, hashes), *(before or ())] for path, before in found.items()}
        changed = [path for path, before in found.items() if _stamp(path) != before]
        if changed:
            raise Unkept(f"{changed[0]} changed while it was read")
        latest = (time.time() - SETTLED) * 1e9
        rows = {path: row if max(row[3:], default=0) < latest else row[:1] for path, row in rows.items()}
        patterns = {text: [_listed(text, deep), deep] for text, deep in self.patterns.items()}
        return {"files": rows, "patterns": patterns}


def changed_read(reads: dict[str, dict[str, list[Any]]], hashes: Hashes) -> str:
    """The first file, or pattern, that is not as it was when samples were made of it."""
    for name, (known, *stamp) in reads.get("files", {}).items():
        if not (stamp and _stamp(name) == stamp) and _hash(name, hashes) != known:
            return name
    changed = (text for text, (known, deep) in reads.get("patterns", {}).items() if _listed(text, deep) != known)
    return next(changed, "")


def _heard(event: str, args: tuple[Any, ...]) -> None:
    if not _active:
        return
    if event == "open" and isinstance(args[0], str | bytes | os.PathLike) and not args[2] & WRITES:
        for reads in _active:
            reads.note(os.fsdecode(args[0]))
    elif event == "glob.glob" and isinstance(args[0], str):
        for reads in _active:
            reads.note_pattern(args[0], bool(args[1]))
    elif event in ("os.listdir", "os.scandir") and isinstance(args[0], str | bytes | os.PathLike):
        folder, asker = os.fsdecode(args[0]), sys._getframe(1).f_code.co_filename
        # the list of a folder that holds the whole project changes with every run
        if asker not in LISTERS and not f"{os.getcwd()}{os.sep}".startswith(f"{os.path.abspath(folder)}{os.sep}"):
            for reads in _active:
                reads.note_pattern(os.path.join(glob.escape(folder), "*"), False)


def _stamp(path: str) -> Stamp:
    """Nothing for what is no file, and could not be read to its end."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    times = [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
    return times if stat.S_ISREG(found.st_mode) else []


def _hash(path: str, hashes: Hashes) -> str:
    try:
        return hashes.of(Path(path))
    except (OSError, ValueError):
        return "absent"


def _listed(pattern: str, deep: bool) -> str:
    return hash_text(json.dumps(sorted(glob.glob(pattern, recursive=deep))))
