"""The folder of the cache: one folder for each kept set of samples, filled by one process while the others wait."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.data.cache.sample_store import MANIFEST, SampleWriter, Stored, Unwritable, is_as_written
from alchemy.files import hash_text, home, lock_file, replace_folder, write_atomic

FORMAT = 3
FIRST_WORD, NEXT_WORD = 1.0, 30.0  # seconds after which a process that waits says so
KEY = re.compile("[0-9a-f]+")
LEFT = re.compile(r"\.([0-9a-f]+)\..+")  # of the process that was filling the entry of this key
Check = Literal["sizes", "changed", "all"]  # which files are compared by hash: none, those changed since, all
_filling = threading.RLock()  # the lock of a file is one of the process, not of a thread


def cache_folder() -> Path:
    return home() / "cache"


@dataclass(frozen=True)
class Entry:
    """A set of samples that is kept, ready to be read; or damaged, and then there is nothing but its folder."""

    folder: Path
    damage: str = ""
    created: float = 0.0
    launch: str = ""  # the start of a program that it was written by
    chain: list[str] = field(default_factory=list)  # the pipes, by name
    facts: dict[str, str] = field(default_factory=dict)  # what the key is made of
    layout: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def samples(self) -> int:
        return int(self.layout["samples"])

    @property
    def bytes(self) -> int:
        if not self.damage:
            return sum(size for _, size in self.layout["files"].values())
        with contextlib.suppress(OSError):
            return sum(path.stat().st_size for path in self.folder.iterdir())
        return 0

    @property
    def used(self) -> float:
        """When it was read last."""
        with contextlib.suppress(OSError):
            return (self.folder if self.damage else self.folder / MANIFEST).stat().st_mtime
        return self.created

    @property
    def data(self) -> list[str]:
        """The files that the samples were made of."""
        return [name.removeprefix("the file ") for name in self.facts if name.startswith("the file ")]

    def open(self, *, views: bool = False) -> Stored:
        return Stored(self.folder, self.layout, views=views)

    def touch(self) -> None:
        """Notes that it was read, and found to be as it was written."""
        with contextlib.suppress(OSError):  # it belongs to somebody else
            os.utime(self.folder / MANIFEST)


def look_at(folder: Path, check: Check = "sizes") -> Entry | None:
    """What a folder holds; None where there is no folder."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
        if fields["format"] != FORMAT:
            return Entry(folder, f"its format is {fields['format']}, expected {FORMAT}")
        if fields.pop("hash") != _hash(fields) or fields.pop("key") != folder.name:
            return Entry(folder, f"{MANIFEST} is not as it was written")
        del fields["format"]
        damage = _damage(folder, fields["layout"]["files"], check)
    except OSError as error:
        missing = os.path.basename(error.filename or "")
        return Entry(folder, f"{missing}: {error.strerror}") if folder.is_dir() else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no JSON, or of something else
        return Entry(folder, f"{MANIFEST} is not as it was written")
    return Entry(folder, damage) if damage else Entry(folder, **fields)


def _damage(folder: Path, files: dict[str, list[Any]], check: Check) -> str:
    """The file that is not as it was written.

    The manifest is the youngest file of an entry and is touched after each comparison, so that a file whose inode has
    changed since is one that somebody has written to, copied or moved.
    """
    compared = (folder / MANIFEST).stat().st_ctime_ns
    for name, known in files.items():
        found = (folder / name).stat()
        if found.st_size != known[1]:
            return f"{name} has {found.st_size:,} bytes, expected {known[1]:,}"
        changed = check == "all" or (check == "changed" and found.st_ctime_ns >= compared)
        if changed and not is_as_written(folder / name, known):
            return f"{name} is not as it was written"
    return ""


def read_entry(folder: Path) -> Entry | None:
    """The entry in a folder; None where there is none, or it is damaged."""
    found = look_at(folder, "changed")
    return None if found is None or found.damage else found


def everything(root: Path, check: Check = "sizes") -> list[Entry]:
    """All that is kept, and what is damaged, the oldest first."""
    folders = [folder for folder in root.iterdir() if KEY.fullmatch(folder.name)] if root.is_dir() else []
    found = [entry for folder in folders if (entry := look_at(folder, check)) is not None]
    return sorted(found, key=lambda entry: entry.created or entry.used)


def entries(root: Path) -> list[Entry]:
    return [entry for entry in everything(root) if not entry.damage]


def remove(root: Path, keys: Iterable[str]) -> list[str]:
    """Removes entries, and what killed processes have left behind; returns the keys that were removed.

    Those that another process is filling stay. Whoever reads an entry goes on reading, since the files are mapped.
    """
    for left in [path for path in root.iterdir() if path.is_dir()]:
        match = LEFT.fullmatch(left.name)
        if match is not None:
            with lock_file(_lock(root, match[1])) as free:
                if free:
                    shutil.rmtree(left, ignore_errors=True)
    removed = []
    for key in keys:
        with lock_file(_lock(root, key)) as free:
            if free:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(root / key)
                _lock(root, key).unlink(missing_ok=True)
                removed.append(key)
    return removed


def keep_samples(
    root: Path,
    key: str,
    about: dict[str, Any],
    samples: Callable[[], Generator[Any, None, None]],
    *,
    overwrite: bool = False,
) -> tuple[Entry, bool]:
    """The entry of a key, and whether this process has made it: the first one does, the others wait for it.

    `overwrite` takes only what this start of the program has made, by whichever of its ranks. Raises Unwritable and
    Unkept where it cannot be made.
    """

    def found() -> Entry | None:
        entry = read_entry(root / key)
        return entry if entry is not None and not (overwrite and entry.launch != launch_id()) else None

    entry = found()
    if entry is not None:
        return entry, False
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _turn(root, key):
            entry = found()
            if entry is not None:
                return entry, False
            replace_folder(root / key, functools.partial(_fill, about, samples))
            entry = read_entry(root / key)
    except OSError as error:
        why = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        raise Unwritable(f"the cache cannot be written: {why}") from error
    except _OfData as error:
        raise error.error from None
    if entry is None:
        raise Unwritable(f"{root / key} was removed while it was written")
    return entry, True


def _fill(about: dict[str, Any], samples: Callable[[], Generator[Any, None, None]], folder: Path) -> None:
    folder.mkdir()
    with SampleWriter(folder) as writer, contextlib.closing(samples()) as read:
        for sample in _apart(read):
            writer.add(sample)
        layout = writer.finish()
    fields = {"format": FORMAT, "key": folder.name, "created": time.time(), "launch": launch_id(), **about}
    fields["layout"] = layout
    # last: what has a manifest is whole. Names in it may hold what is no Unicode, and come back as they were
    write_atomic(folder / MANIFEST, json.dumps({**fields, "hash": _hash(fields)}) + "\n")


class _OfData(Exception):
    """Carries an error of reading samples past those who take it for one of writing them."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def _apart(samples: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from samples
    except OSError as error:
        raise _OfData(error) from None


def _hash(fields: dict[str, Any]) -> str:
    return hash_text(json.dumps(fields, sort_keys=True))


@contextlib.contextmanager
def _turn(root: Path, key: str) -> Iterator[None]:
    """Waits until nobody else fills the entry. The lock of a process that dies is free at once."""
    begin, word = time.monotonic(), FIRST_WORD
    with _filling:
        while True:
            with lock_file(_lock(root, key)) as free:
                if free:
                    yield
                    return
            waited = time.monotonic() - begin
            if waited >= word:
                logger.info("cache {}: another process is filling it; waited {:.0f} s", short(key), waited)
                word += NEXT_WORD
            time.sleep(min(0.5, 0.02 + waited / 20))


def _lock(root: Path, key: str) -> Path:
    return root / f".{key}.lock"


@functools.cache
def _token(pid: int) -> str:
    return uuid.uuid4().hex


def launch_id() -> str:
    """What tells one start of a program from another; the ranks of one start have it in common."""
    env = os.environ
    if int(env.get("WORLD_SIZE", "1")) < 2:
        return _token(os.getpid())
    words = (os.getppid(), *(env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")))
    return "/".join(map(str, (*words, env.get("TORCHELASTIC_RESTART_COUNT", ""))))


def short(key: str) -> str:
    """A key as it is shown."""
    return key[:12]


def told_size(count: float) -> str:
    """A size in words.

    >>> told_size(1_300_000)
    '1.3 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def nearest(chain: Sequence[str], facts: dict[str, str], among: Iterable[Entry]) -> Entry | None:
    """The entry of the same chain that differs least, and of those the newest."""
    alike = [entry for entry in among if entry.chain == list(chain)]
    return min(alike, key=lambda entry: (len(facts.items() ^ entry.facts.items()), -entry.created), default=None)
