"""Find what can be deleted: superseded checkpoints, leftovers of killed runs, and old records in the bin."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from alchemy.checkpoint.links import is_linked
from alchemy.checkpoint.manifest import LINKS, TEMPORARY, checkpoints
from alchemy.errors import AlchemyError
from alchemy.index.row import Row
from alchemy.index.value_format import parse_iso
from alchemy.records.bin import delete_forever, list_bin, list_leftovers, lock_record
from alchemy.records.disk_usage import freed_bytes
from alchemy.records.status import status_of

DAY = 86400.0


@dataclass(frozen=True)
class Garbage:
    """Something to delete: what it is, where, how many bytes that frees, and how it is deleted."""

    what: str
    path: Path
    items: tuple[str, ...]
    bytes: int
    delete: Callable[[], None]


def find_checkpoints(row: Row, keep: Collection[str]) -> Iterator[Garbage]:
    """Yield the checkpoints of a finished run that `keep` (`best`, `last`) does not name.

    A run keeps at least one checkpoint. What the project wrote to `checkpt/` is never deleted.
    """
    state = row.folder / "state"
    if row.status != "finished" or state.is_symlink():
        return
    found = checkpoints(state)
    links = {name: state / name for name in LINKS if (state / name).is_dir()}
    kept = {name: path for name, path in links.items() if name in keep}
    saved = {folder for folder in found if any(is_linked(folder, path) for path in kept.values())}
    if not saved:  # nothing of what is wanted exists: the latest checkpoint stays
        saved, kept = set(found[-1:]), {name: path for name, path in links.items() if name == "last"}
    doomed = [folder for folder in found if folder not in saved]
    doomed += [path for name, path in links.items() if name not in kept]
    doomed = [folder for folder in doomed if not folder.is_symlink()]
    if doomed and (size := freed_bytes(doomed)):
        names = tuple(folder.name for folder in doomed)
        yield Garbage("checkpoints", row.folder, names, size, partial(_delete_from_record, row.folder, doomed))


def find_leftovers(row: Row) -> Iterator[Garbage]:
    """Yield the temporary folders that killed processes left in a record that is not running."""
    state = row.folder / "state"
    if row.status in ("running", "lost") or state.is_symlink():
        return
    doomed = [path for path in state.glob(f"{TEMPORARY}*") if path.is_dir() and not path.is_symlink()]
    if doomed:
        names, size = tuple(path.name for path in doomed), freed_bytes(doomed)
        yield Garbage("leftovers", row.folder, names, size, partial(_delete_from_record, row.folder, doomed))


def find_in_bin(home: Path, days: float) -> Iterator[Garbage]:
    """Yield the records that have been in the bin for more than `days`, and what killed processes left there."""
    for folder in list_leftovers(home):
        if time.time() - folder.stat().st_mtime > DAY:  # a process may be using it
            size = freed_bytes([folder])
            yield Garbage("leftovers", folder, (folder.name,), size, partial(shutil.rmtree, folder))
    for removed in list_bin(home):
        when = parse_iso(removed.when)
        if when is not None and time.time() - when > days * DAY:
            size = freed_bytes([removed.folder])
            yield Garbage("bin", removed.folder, (removed.id,), size, partial(delete_forever, removed))


def _delete_from_record(record: Path, folders: list[Path]) -> None:
    """Delete folders of a record, unless a run has started to write to it in the meantime."""
    if status_of(record) == "running":
        raise AlchemyError(f"{record} is running")
    with lock_record(record):
        for folder in folders:
            doomed = folder.with_name(f"{TEMPORARY}gc-{folder.name}")  # a killed process leaves no half of a checkpoint
            folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
