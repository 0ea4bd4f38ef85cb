"""Bring the index up to date with the record folders: add new records, update changed ones, drop deleted ones."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from alchemy.index.curves import Mark, unpack
from alchemy.index.metric_entries import MetricEntries, Series, Summary
from alchemy.index.read_record import Entry, Known, read_record, stamp_of, unreadable
from alchemy.index.schema import LONGEST_PATH, make_storable
from alchemy.index.store import Store
from alchemy.records.status import INFO, status_of

if TYPE_CHECKING:
    from multiprocessing import connection

BATCH_SECONDS = 1.0  # how long records are read before they are written
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
            (entry.path for entry in entries if entry.path in known or _may_hold_records(entry)), reverse=True
        )


def _may_hold_records(entry: os.DirEntry[str]) -> bool:
    hidden = entry.name.startswith(".") or entry.name in _SKIPPED
    return not hidden and entry.is_dir(follow_symlinks=False) and _is_storable_path(entry.path)


def _is_storable_path(path: str) -> bool:
    """Return whether a path can be stored: valid UTF-8, and not too long."""
    return make_storable(path) == path and len(path.encode()) <= LONGEST_PATH


def is_record(folder: str) -> bool:
    """Return whether a folder is a record that can be indexed."""
    try:
        return _is_storable_path(folder) and _looks_like_record(set(os.listdir(folder)))
    except OSError:
        return False


def _looks_like_record(names: set[str]) -> bool:
    return INFO in names or ("cfg.toml" in names and bool(names & _OLD_MARKS))


def synchronize(
    store: Store, roots: Sequence[Path], *, only: tuple[str, ...] = (), progress: Progress | None = None
) -> Changes:
    """Update the index for all records below `roots`. Records elsewhere stay in the index while they exist.

    `only` restricts the search for changes to records whose name begins with one of these texts; apart from them, only
    new, deleted and running records are updated. This takes half the time if there are thousands of records.
    """
    site = store.site
    rows = store.query("SELECT path, stamp, status FROM records WHERE site = :site", {"site": site})
    known = {path: (stamp, status) for path, stamp, status in rows}

    def look(path: str) -> str:
        stamp, status = known.get(path, ("", "running"))
        is_skipped = only and status != "running" and not os.path.basename(path).startswith(only)
        return stamp if is_skipped else stamp_of(path)

    stamps = {path: look(path) for root in roots for path in find_records(os.path.abspath(root), known)}
    stamps |= {path: stamp_of(path) for path in known if path not in stamps}
    changed = [path for path, stamp in stamps.items() if stamp and known.get(path, ("",))[0] != stamp]
    gone = [path for path in known if not stamps[path]]
    running = [path for path, (stamp, status) in known.items() if status == "running" and stamp == stamps[path]]
    growing = [path for path in changed if known.get(path, ("", ""))[1] == "running"]
    others = [path for path in changed if path not in set(growing)]
    entries = chain(_read_all(others, site), (_read(path, site, _load_known(store, path)) for path in growing))
    done = 0
    while batch := _take_batch(entries):
        with store.transaction():
            writer = _Writer(store, site)
            for entry in batch:
                writer.put(entry)
        done += len(batch)
        if progress is not None:
            progress(done, len(changed))
    died = [path for path in running if status_of(Path(path)) not in ("", "running")]
    if gone or died:
        with store.transaction():
            writer = _Writer(store, site)
            for path in gone:
                writer.remove(path)
            for path in died:  # without changing a file
                writer.put(_read(path, site))
    new = sum(path not in known for path in changed)
    return Changes(new, len(changed) - new, len(gone))


def _take_batch(entries: Iterator[Entry]) -> list[Entry]:
    """Read records for a second, before the database is locked to write them."""
    end, batch = time.monotonic() + BATCH_SECONDS, []
    for entry in entries:
        batch.append(entry)
        if time.monotonic() > end:
            break
    return batch


def _read_all(paths: Sequence[str], site: str) -> Iterator[Entry]:
    workers = min(8, os.cpu_count() or 1)
    if len(paths) < PARALLEL or workers < 2 or not _may_fork():
        return (_read(path, site) for path in paths)
    return _read_in_processes(paths, site, workers)


def _may_fork() -> bool:
    """Return whether this process has no threads, such as those of torch: forking it would not be safe."""
    return "torch" not in sys.modules and threading.active_count() == 1


def _read_in_processes(paths: Sequence[str], site: str, workers: int) -> Iterator[Entry]:
    from multiprocessing import connection, get_context

    context = get_context("fork")
    sources: list[connection.Connection] = []
    pending = set(paths)
    try:
        for place in range(workers):
            source, target = context.Pipe(duplex=False)
            sources.append(source)
            words = (target, sources, paths[place::workers], site)
            context.Process(target=_send_entries, args=words, daemon=True).start()
            target.close()
        while sources:
            for source in cast(list[connection.Connection], connection.wait(sources)):
                try:
                    entry = source.recv()
                except (EOFError, OSError):
                    sources.remove(source)
                    continue
                pending.discard(entry.fields["path"])
                yield entry
    finally:
        for source in sources:
            source.close()
    for path in sorted(pending):  # of a process that was killed
        yield _read(path, site)


def _send_entries(
    target: connection.Connection, sources: Sequence[connection.Connection], paths: Sequence[str], site: str
) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process is interrupted, and closes the pipe
    for source in sources:  # copies of the main process's ends: otherwise, the pipe would stay open if that is killed
        source.close()
    with contextlib.suppress(OSError):  # the main process is gone
        for path in paths:
            target.send(_read(path, site))


def _read(path: str, site: str, known: Known | None = None) -> Entry:
    try:
        return read_record(Path(path), site, known)
    except Exception as error:  # whatever a record contains, it must not hide the others
        return unreadable(Path(path), site, error)


def _load_known(store: Store, path: str) -> Known | None:
    """Return what the index knows about the metrics of a running record; None if its file is small."""
    sql = "SELECT id, pid, pid_started, gen, metrics_lines, metrics_bytes, mark_lines, mark_bytes, updates, best_update"
    params = {"site": store.site, "path": path}
    for number, pid, start, gen, lines, size, mark_lines, mark_bytes, updates, best in store.query(
        f"{sql} FROM records WHERE site = :site AND path = :path", params
    ):
        sql = "SELECT n.name, s.points, s.data FROM curves s JOIN names n ON n.id = s.metric "
        rows = store.query(f"{sql} WHERE s.record = :id AND s.level = 0", {"id": number})
        series = {name: Series(points, unpack(data)) for name, points, data in rows}
        sql = "SELECT n.name, m.last, m.at_best, m.lowest, m.highest, m.points FROM metrics m "
        rows = store.query(f"{sql} JOIN names n ON n.id = m.metric WHERE m.record = :id", {"id": number})
        summaries = {name: Summary(*values) for name, *values in rows}
        mark = Mark(mark_lines, mark_bytes)
        if series:
            return Known((pid, start, gen), MetricEntries(summaries, series, lines, size, updates, mark, best))
    return None


class _Writer:
    """Writes entries to the store, within a transaction of the caller."""

    def __init__(self, store: Store, site: str) -> None:
        self._store, self._site = store, site
        self._names = {name: number for number, name in store.query("SELECT id, name FROM names")}

    def put(self, entry: Entry) -> None:
        """Insert a record, or replace it."""
        store, fields = self._store, entry.fields
        number = self._find(fields["path"])
        if number is None:
            marks = ", ".join(f":{name}" for name in fields)
            number = store.insert(f"INSERT INTO records ({', '.join(fields)}) VALUES ({marks})", fields)
        else:
            self._clear(number)
            changes = ", ".join(f"{name} = :{name}" for name in fields)
            store.write(f"UPDATE records SET {changes} WHERE id = :id", {**fields, "id": number})
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
            [
                {"metric": self._name(name), "record": number, **summary._asdict()}
                for name, summary in entry.metrics.items()
            ],
        )
        store.write_many(
            "INSERT INTO curves (record, metric, level, points, data) "
            "VALUES (:record, :metric, :level, :points, :data)",
            [
                {"record": number, "metric": self._name(name), "level": level, "points": points, "data": data}
                for name, level, points, data in entry.levels
            ],
        )
        store.put_words(number, entry.words)

    def remove(self, path: str) -> None:
        number = self._find(path)
        if number is not None:
            self._clear(number)
            self._store.write("DELETE FROM records WHERE id = :id", {"id": number})

    def _find(self, path: str) -> int | None:
        """Return the id of a record; looked up in each transaction, since other processes write too."""
        sql = "SELECT id FROM records WHERE site = :site AND path = :path"
        rows = self._store.query(sql, {"site": self._site, "path": path})
        return rows[0][0] if rows else None

    def _clear(self, number: int) -> None:
        for table in ("config", "metrics", "curves"):
            self._store.write(f"DELETE FROM {table} WHERE record = :id", {"id": number})
        self._store.remove_words(number)

    def _name(self, name: str) -> int:
        """Return the number of a config key or metric."""
        if name not in self._names:
            self._names[name] = self._store.insert("INSERT INTO names (name) VALUES (:name)", {"name": name})
        return self._names[name]
