"""Manage the cache folder: one entry per set of samples, written by one process while the others wait."""

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

from alchemy.data.cache.sample_store import MANIFEST, CacheNotWritable, SampleWriter, Stored, is_as_written
from alchemy.files import hash_text, home, lock_file, replace_folder, write_atomic

FORMAT = 3
FIRST_NOTICE, NOTICE_INTERVAL = 1.0, 30.0  # seconds before the first log message and between later ones
KEY = re.compile("[0-9a-f]+")
LEFTOVER = re.compile(r"\.([0-9a-f]+)\..+")  # the temporary folder of a process that was writing the entry for this key
Check = Literal["sizes", "changed", "all"]  # which files to verify by hash: none, changed files, or all
_filling = threading.RLock()  # file locks only exclude other processes, not other threads


def cache_folder() -> Path:
    return home() / "cache"


@dataclass(frozen=True)
class Entry:
    """A cached set of samples; if it is damaged, only `folder` and `damage` are set."""

    folder: Path
    damage: str = ""
    created: float = 0.0
    launch: str = ""  # the launch that wrote the entry; see `launch_id`
    chain: list[str] = field(default_factory=list)  # the names of the pipes
    facts: dict[str, str] = field(default_factory=dict)  # the parts of the key
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
        """The time of the last read."""
        with contextlib.suppress(OSError):
            return (self.folder if self.damage else self.folder / MANIFEST).stat().st_mtime
        return self.created

    @property
    def data(self) -> list[str]:
        """The files that the samples were read from."""
        return [name.removeprefix("the file ") for name in self.facts if name.startswith("the file ")]

    def open(self, *, views: bool = False) -> Stored:
        return Stored(self.folder, self.layout, views=views)

    def touch(self) -> None:
        """Mark the entry as read and verified."""
        with contextlib.suppress(OSError):  # owned by another user
            os.utime(self.folder / MANIFEST)


def inspect_entry(folder: Path, check: Check = "sizes") -> Entry | None:
    """Read and check the entry in a folder, which may be damaged; return None if the folder does not exist."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
        if fields["format"] != FORMAT:
            return Entry(folder, f"its format is {fields['format']}, expected {FORMAT}")
        if fields.pop("hash") != _hash(fields) or fields.pop("key") != folder.name:
            return Entry(folder, f"{MANIFEST} was modified after it was written")
        del fields["format"]
        damage = _find_damage(folder, fields["layout"]["files"], check)
    except OSError as error:
        missing = os.path.basename(error.filename or "")
        return Entry(folder, f"{missing}: {error.strerror}") if folder.is_dir() else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # not JSON, or not a manifest
        return Entry(folder, f"{MANIFEST} was modified after it was written")
    return Entry(folder, damage) if damage else Entry(folder, **fields)


def _find_damage(folder: Path, files: dict[str, list[Any]], check: Check) -> str:
    """Describe the first file that differs from what was written; return "" if no file differs.

    The manifest is written last and touched after each comparison. A file with a later ctime was therefore modified,
    copied or moved since then.
    """
    compared = (folder / MANIFEST).stat().st_ctime_ns
    for name, known in files.items():
        found = (folder / name).stat()
        if found.st_size != known[1]:
            return f"{name} has {found.st_size:,} bytes, expected {known[1]:,}"
        changed = check == "all" or (check == "changed" and found.st_ctime_ns >= compared)
        if changed and not is_as_written(folder / name, known):
            return f"{name} was modified after it was written"
    return ""


def read_entry(folder: Path) -> Entry | None:
    """Return the entry in a folder; None if it is missing or damaged."""
    found = inspect_entry(folder, "changed")
    return None if found is None or found.damage else found


def list_entries(root: Path, check: Check = "sizes") -> list[Entry]:
    """Return all entries, including damaged ones, oldest first."""
    folders = [folder for folder in root.iterdir() if KEY.fullmatch(folder.name)] if root.is_dir() else []
    found = [entry for folder in folders if (entry := inspect_entry(folder, check)) is not None]
    return sorted(found, key=lambda entry: entry.created or entry.used)


def entries(root: Path) -> list[Entry]:
    """Return the entries that are not damaged."""
    return [entry for entry in list_entries(root) if not entry.damage]


def remove(root: Path, keys: Iterable[str]) -> list[str]:
    """Remove entries and the leftovers of killed processes; return the keys that were removed.

    Entries that another process is writing are kept. Processes that read a removed entry are not affected, because
    its files stay mapped.
    """
    for leftover in [path for path in root.iterdir() if path.is_dir()]:
        match = LEFTOVER.fullmatch(leftover.name)
        if match is not None:
            with lock_file(_lock(root, match[1])) as free:
                if free:
                    shutil.rmtree(leftover, ignore_errors=True)
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
    """Return the entry for a key and whether this process wrote it; the first process writes it while the others wait.

    With `overwrite`, only an entry written by a rank of this launch is reused. Raises CacheNotWritable or NotCacheable
    if the entry cannot be written.
    """

    def find_entry() -> Entry | None:
        entry = read_entry(root / key)
        return entry if entry is not None and not (overwrite and entry.launch != launch_id()) else None

    entry = find_entry()
    if entry is not None:
        return entry, False
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _wait_for_lock(root, key):
            entry = find_entry()
            if entry is not None:
                return entry, False
            replace_folder(root / key, functools.partial(_fill, about, samples))
            entry = read_entry(root / key)
    except OSError as error:
        reason = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        raise CacheNotWritable(f"cannot write the cache: {reason}") from error
    except _DataError as error:
        raise error.error from None
    if entry is None:
        raise CacheNotWritable(f"{root / key} was removed while it was being written")
    return entry, True


def _fill(about: dict[str, Any], samples: Callable[[], Generator[Any, None, None]], folder: Path) -> None:
    folder.mkdir()
    with SampleWriter(folder) as writer, contextlib.closing(samples()) as read:
        for sample in _wrap_errors(read):
            writer.add(sample)
        layout = writer.finish()
    fields = {"format": FORMAT, "key": folder.name, "created": time.time(), "launch": launch_id(), **about}
    fields["layout"] = layout
    # written last: an entry with a manifest is complete. The JSON escapes file names that are not valid Unicode
    write_atomic(folder / MANIFEST, json.dumps({**fields, "hash": _hash(fields)}) + "\n")


class _DataError(Exception):
    """Wraps an error raised while reading samples, to distinguish it from an error while writing them."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def _wrap_errors(samples: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from samples
    except OSError as error:
        raise _DataError(error) from None


def _hash(fields: dict[str, Any]) -> str:
    return hash_text(json.dumps(fields, sort_keys=True))


@contextlib.contextmanager
def _wait_for_lock(root: Path, key: str) -> Iterator[None]:
    """Hold the lock of an entry, waiting for any other writer to finish. If a process dies, its lock is released."""
    begin, notice = time.monotonic(), FIRST_NOTICE
    with _filling:
        while True:
            with lock_file(_lock(root, key)) as free:
                if free:
                    yield
                    return
            waited = time.monotonic() - begin
            if waited >= notice:
                logger.info("cache {}: another process is writing it; waited {:.0f} s", short(key), waited)
                notice += NOTICE_INTERVAL
            time.sleep(min(0.5, 0.02 + waited / 20))


def _lock(root: Path, key: str) -> Path:
    return root / f".{key}.lock"


@functools.cache
def _token(pid: int) -> str:
    return uuid.uuid4().hex


def launch_id() -> str:
    """Return an identifier for this launch of the program, which all of its ranks share."""
    env = os.environ
    if int(env.get("WORLD_SIZE", "1")) < 2:
        return _token(os.getpid())
    parts = (os.getppid(), *(env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")))
    return "/".join(map(str, (*parts, env.get("TORCHELASTIC_RESTART_COUNT", ""))))


def short(key: str) -> str:
    """Return a key shortened for display."""
    return key[:12]


def nearest(chain: Sequence[str], facts: dict[str, str], among: Iterable[Entry]) -> Entry | None:
    """Return the entry of the same chain with the fewest differences; ties go to the newest entry."""
    alike = [entry for entry in among if entry.chain == list(chain)]
    return min(alike, key=lambda entry: (len(facts.items() ^ entry.facts.items()), -entry.created), default=None)
