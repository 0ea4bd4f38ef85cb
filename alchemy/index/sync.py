"""Bring the index up to date with the record folders: add new records, update changed ones, drop deleted ones."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from alchemy.index.read_record import Entry, read_record, stamp_of
from alchemy.index.store import Store
from alchemy.records.status import INFO, status_of

BATCH_SECONDS = 1.0  # how long a transaction stays open, and other processes wait
PARALLEL = 400  # new records from which reading them in several processes pays off
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_OLD_MARKS = {"run.log", "checkpt"}  # next to cfg.toml: a record from alchemy 0.x, which has no record.json


class Changes(NamedTuple):
    """What a synchronization has changed."""

    added: int = 0
    updated: int = 0
    removed: int = 0


Progress = Callable[[int, int], None]  # called with the number of records read so far, and the total


def find_records(root: str, known: Iterable[str] = ()) -> Iterator[str]:
    """Yield the record folders below `root`, without descending into hidden folders, links or records.

    `known` records are not opened again: only their files are checked later.
    """
    known = known if isinstance(known, set | dict) else set(known)
    pending = [root]
    while pending:
        folder = pending.pop()
        if folder in known:
            yield folder
            continue
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError:  # deleted in the meantime, or not readable
            continue
        if _looks_like_record({entry.name for entry in entries}):
            yield folder
            continue
        pending += sorted(
            (
                entry.path
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
            ),
            reverse=True,
        )


def is_record(folder: str) -> bool:
    """Return whether a folder is a record."""
    try:
        return _looks_like_record(set(os.listdir(folder)))
    except OSError:
        return False


def _looks_like_record(names: set[str]) -> bool:
    return INFO in names or ("cfg.toml" in names and bool(names & _OLD_MARKS))


def synchronize(store: Store, roots: Sequence[Path], *, site: str = "", progress: Progress | None = None) -> Changes:
    """Update the index for all records below `roots`. Records elsewhere stay in the index while they exist."""
    rows = store.query("SELECT path, id, stamp, status FROM records WHERE site = :site", {"site": site})
    known = {path: (number, stamp, status) for path, number, stamp, status in rows}
    seen, changed = set(), []
    for root in roots:
        for path in find_records(os.path.abspath(root), known):
            if path not in seen:
                seen.add(path)
                stamp = stamp_of(path)
                if path not in known or known[path][1] != stamp:
                    changed.append(path)
    gone = [path for path in known if path not in seen and not stamp_of(path)]
    changed += [path for path in known if path not in seen and path not in gone and known[path][1] != stamp_of(path)]
    stale = [path for path in known if known[path][2] == "running" and path not in gone and path not in changed]
    if not (changed or gone or stale):
        return Changes()
    writer = _Writer(store, {path: number for path, (number, _, _) in known.items()})
    with_batches = _in_batches(store, _read_all(changed, site), len(changed), progress)
    for entry in with_batches:
        writer.put(entry)
    if gone or stale:
        with store.transaction():
            for path in gone:
                writer.remove(path)
            for path in stale:  # the process may have died without changing a file
                status = status_of(Path(path))
                if status and status != known[path][2]:
                    writer.put(read_record(Path(path), site))
    new = sum(path not in known for path in changed)
    return Changes(new, len(changed) - new, len(gone))


def _in_batches(store: Store, entries: Iterator[Entry], total: int, progress: Progress | None) -> Iterator[Entry]:
    """Yield the entries, with a transaction around every second of work."""
    done, waiting = 0, next(entries, None)
    while waiting is not None:
        with store.transaction():
            begin = time.monotonic()
            while waiting is not None and time.monotonic() - begin < BATCH_SECONDS:
                yield waiting
                done += 1
                waiting = next(entries, None)
        if progress is not None:
            progress(done, total)


def _read_all(paths: Sequence[str], site: str) -> Iterator[Entry]:
    workers = min(8, os.cpu_count() or 1)
    if len(paths) < PARALLEL or workers < 2 or "torch" in sys.modules:  # forking a process with torch is not safe
        for path in paths:
            yield read_record(Path(path), site)
        return
    import multiprocessing
    from functools import partial

    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap(partial(_read, site=site), paths, chunksize=16)


def _read(path: str, site: str) -> Entry:
    return read_record(Path(path), site)


class _Writer:
    """Writes entries to the store, within a transaction of the caller."""

    def __init__(self, store: Store, ids: dict[str, int]) -> None:
        self._store, self._ids = store, ids
        self._names = {name: number for number, name in store.query("SELECT id, name FROM names")}

    def put(self, entry: Entry) -> None:
        """Insert a record, or replace it."""
        store, fields, path = self._store, entry.fields, entry.fields["path"]
        columns = list(fields)
        if path in self._ids:
            number = self._ids[path]
            self._clear(number)
            changes = ", ".join(f"{name} = :{name}" for name in columns)
            store.write(f"UPDATE records SET {changes} WHERE id = :id", {**fields, "id": number})
        else:
            marks = ", ".join(f":{name}" for name in columns)
            updates = ", ".join(f"{name} = excluded.{name}" for name in columns)  # another process was faster
            number = store.insert(
                f"INSERT INTO records ({', '.join(columns)}) VALUES ({marks}) "
                f"ON CONFLICT (site, path) DO UPDATE SET {updates}",
                fields,
            )
            self._ids[path] = number
            self._clear(number)
        store.write_many(
            "INSERT INTO config (key, record, number, text) VALUES (:key, :record, :number, :text)",
            [
                {"key": self._name(key), "record": number, "number": value, "text": text}
                for key, (value, text) in entry.config.items()
            ],
        )
        store.write_many(
            "INSERT INTO metrics (metric, record, last, at_best, lowest, highest, points) "
            "VALUES (:metric, :record, :last, :at_best, :lowest, :highest, :points)",
            [{"metric": self._name(name), "record": number, **values} for name, values in entry.metrics.items()],
        )
        store.write_many(
            "INSERT INTO curves (record, metric, level, data) VALUES (:record, :metric, :level, :data)",
            [
                {"record": number, "metric": self._name(name), "level": level, "data": data}
                for name, level, data in entry.levels
            ],
        )
        store.write(
            "INSERT INTO search (rowid, words) VALUES (:record, :words)", {"record": number, "words": entry.words}
        )

    def remove(self, path: str) -> None:
        number = self._ids.pop(path)
        self._clear(number)
        self._store.write("DELETE FROM records WHERE id = :id", {"id": number})

    def _clear(self, number: int) -> None:
        for table in ("config", "metrics", "curves"):
            self._store.write(f"DELETE FROM {table} WHERE record = :id", {"id": number})
        self._store.write("DELETE FROM search WHERE rowid = :id", {"id": number})

    def _name(self, name: str) -> int:
        """Return the number of a config key or metric."""
        if name not in self._names:
            self._names[name] = self._store.insert(
                "INSERT INTO names (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET name = excluded.name",
                {"name": name.replace("\0", "").encode("utf-8", "replace").decode("utf-8")},
            )
        return self._names[name]


DATABASE_ERRORS: tuple[type[Exception], ...] = (sqlite3.Error,)
