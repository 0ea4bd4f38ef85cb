"""The folder of a queue: one file per entry, replaced atomically under one lock."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from alchemy.errors import AlchemyError
from alchemy.files import home, read_table, write_atomic, write_json
from alchemy.queue.entry import REMOVED, Entry, NewEntry, parse_entry, serialize_entry
from alchemy.queue.locked_file import lock
from alchemy.records.status import now

SUFFIXES = ("attempt", "records", "log")  # of the files that are removed with an entry
LAST_ID = "last_id"  # ids are never used again, not even those of removed entries
OLD_SECONDS = 3600  # age of temporary files that killed writers have left behind

# inside the class, `list` is a method
_Entries = list[Entry]
_Paths = list[Path]
_Files = list[os.DirEntry[str]]
_Signature = tuple[int, int, int]


class MissingEntry(AlchemyError):
    """Raised if there is no entry with a number."""


class Queue:
    """The entries of a queue.

        queue = Queue()
        (entry,) = queue.add([NewEntry(argv=("python", "train.py"))])

    Reading needs no lock, and works in a folder that cannot be written to.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or home() / "queue").absolute()
        self.damaged: dict[str, str] = {}  # file -> problem, as of the last `list`
        self._read: dict[str, tuple[_Signature, Entry]] = {}

    def path(self, id: int, suffix: str = "json") -> Path:
        return self.folder / f"{id:06d}.{suffix}"

    def add(self, specs: Sequence[NewEntry]) -> _Entries:
        """Add entries at the end; all of them or, if there is an error, none."""
        added: list[Entry] = []
        with self.lock():
            known = {int(file.name[:-5]) for file in self._scan()}
            if not all(spec.argv for spec in specs):
                raise AlchemyError("an entry needs a command", hint="pass at least one word as argv")
            for id in sorted({id for spec in specs for id in spec.after} - known):
                raise AlchemyError(f"cannot wait for entry {id}: there is none", hint="see `alchemy queue ls --all`")
            first = max([self._last_id(), *known]) + 1
            try:
                write_atomic(self.folder / LAST_ID, f"{first + len(specs) - 1}\n")
                for id, spec in enumerate(specs, first):
                    values = {**asdict(spec), "needs": spec.needs}
                    added.append(Entry(**values, id=id, added=now(), position=float(id)))
                    write_json(self.path(id), serialize_entry(added[-1]))
            except BaseException:
                for entry in added:
                    self.path(entry.id).unlink(missing_ok=True)
                raise
        return added

    def list(self, group: str | None = None) -> _Entries:
        """Return all entries, or those of a group, in the order in which they start; reads only changed files."""
        self.damaged.clear()
        found: list[Entry] = []
        for file in self._scan():
            with contextlib.suppress(FileNotFoundError):  # it was removed in the meantime
                entry = self._load(file.name)
                if entry is not None and group in (None, entry.group):
                    found.append(entry)
        return sorted(found, key=lambda entry: entry.order)

    def get(self, id: int) -> Entry:
        """Return one entry; raise an error if there is none, or if its file is damaged."""
        try:
            entry = self._load(self.path(id).name)
        except FileNotFoundError:
            raise MissingEntry(f"there is no entry {id}", hint="see `alchemy queue ls --all`") from None
        if entry is None:
            path = self.path(id)
            raise AlchemyError(f"cannot read {path}: {self.damaged[path.name]}", hint="repair or remove the file")
        return entry

    def update(self, id: int, change: Callable[[Entry], Entry]) -> Entry:
        """Replace an entry by `change(entry)`, which must not call the queue; return the new one.

        An entry that gets the state "removed" is deleted; its records stay.
        """
        with self.lock():
            before = self.get(id)
            after = change(before)
            if after.state == REMOVED:
                self.path(id).unlink(missing_ok=True)
                for suffix in SUFFIXES:
                    with contextlib.suppress(OSError):  # a folder, for example, which is not ours
                        self.path(id, suffix).unlink()
            elif after != before:
                write_json(self.path(id), serialize_entry(after))
        return after

    def find_position(self, id: int, before: int) -> float:
        """Return a position right before another entry for entry `id`.

        If there is no number between two neighbors, all entries with this priority are numbered again.
        """
        target = self.get(before)
        rows = [entry for entry in self.list() if entry.priority == target.priority]
        earlier = [entry.position for entry in rows if entry.order < target.order and entry.id != id]
        position = (earlier[-1] + target.position) / 2 if earlier else target.position - 1
        if position < target.position and (not earlier or earlier[-1] < position):
            return position
        for number, entry in zip(sorted(entry.id for entry in rows), rows, strict=True):
            self.update(entry.id, functools.partial(replace, position=float(number)))
        return self.find_position(id, before)

    def list_records(self, id: int) -> _Paths:
        """Return the records that the attempts of an entry have created, the latest last."""
        with contextlib.suppress(FileNotFoundError):
            lines = self.path(id, "records").read_text("utf-8", errors="surrogateescape").splitlines()
            return [Path(line) for line in dict.fromkeys(lines) if os.path.isdir(line)]
        return []

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the queue for a change; waits for other processes, whose changes take milliseconds."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # commands and variables may contain secrets
            file = lock(self.folder / "lock", wait=True)
            assert file is not None, "locking waits"
            with file:
                yield
        except OSError as error:
            hint = "free some space, or fix its permissions"
            raise AlchemyError(f"cannot write to the queue {self.folder}: {error.strerror}", hint=hint) from error

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed writers."""
        for path in self.folder.glob(".*.*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > OLD_SECONDS:
                    path.unlink()

    def _scan(self) -> _Files:
        try:
            with os.scandir(self.folder) as files:
                return [file for file in files if file.name.endswith(".json") and file.name[:-5].isdecimal()]
        except FileNotFoundError:
            return []

    def _load(self, name: str) -> Entry | None:
        """Return an entry, or None if its file is damaged; raise FileNotFoundError if there is none."""
        path = os.path.join(self.folder, name)
        try:
            info = os.stat(path)
            signature = (info.st_ino, info.st_mtime_ns, info.st_size)
            known = self._read.get(name)
            if known is not None and known[0] == signature:
                return known[1]
            entry = parse_entry(read_table(path))
            if self.path(entry.id).name != name:
                raise ValueError(f"its id is {entry.id}")
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not os.path.islink(path):
                raise
            self.damaged[name] = str(error)
            return None
        self._read[name] = (signature, entry)
        return entry

    def _last_id(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / LAST_ID).read_text())
        return 0
